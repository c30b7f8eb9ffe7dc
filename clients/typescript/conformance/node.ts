/** Adapter in Node: `hubbub conformance --command "node dist/conformance-node.js"`. */

import { createInterface } from "node:readline";
import { FileStorage } from "../src/journal.ts";
import { Session } from "./answers.ts";

const session = new Session((directory) => new FileStorage(directory));

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await session.answer(JSON.parse(line)))}\n`);
}
