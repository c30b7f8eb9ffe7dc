/** Telemetry under local differential privacy: the client for browsers and Electron's windows. */

export { Client, type ClientOptions, type Inspection } from "./client.ts";
export { HubbubError } from "./errors.ts";
export { IndexedDbStorage } from "./indexeddb.ts";
export type { Value } from "./kinds.ts";
export type { Timer } from "./limits.ts";
export type { Definition } from "./metric.ts";
export type { Policy } from "./privacy.ts";
export type { Outcome } from "./recorder.ts";
export type { ConsentLevel, Storage } from "./state.ts";
export type { Transport, UploadResponse } from "./transport.ts";
