/** Telemetry under local differential privacy: the client for Node and Electron's main process. */

export * from "./index.ts";
export { FileStorage } from "./journal.ts";
