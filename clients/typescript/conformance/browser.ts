/** Adapter in a page: a program drives the browser and calls `conformance(line)` (tests/typescript/browser_adapter.py). */

import { IndexedDbStorage } from "../src/indexeddb.ts";
import { Session } from "./answers.ts";

const session = new Session(() => new IndexedDbStorage("conformance"));

Object.assign(globalThis, {
  conformance: async (line: string): Promise<string> => JSON.stringify(await session.answer(JSON.parse(line))),
});
