// Directories of tests, which are deleted when the process ends.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = mkdtempSync(join(tmpdir(), "hubbub-"));
process.on("exit", () => rmSync(root, { recursive: true, force: true }));

export const newDirectory = () => mkdtempSync(join(root, "state-"));
