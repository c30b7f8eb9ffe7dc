/** Bundles: the client for browsers and for Node, also for `require`, and the adapters of the conformance kit. */

import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const common = { bundle: true, format: "esm", logLevel: "warning" };
const browser = { ...common, minify: true, target: "es2022" };
const node = { ...common, platform: "node", target: "node20" };

await build({ ...browser, entryPoints: ["src/index.ts"], outfile: "dist/hubbub.js" });
await build({ ...node, entryPoints: ["src/node.ts"], outfile: "dist/node.js" });
mkdirSync("dist/cjs", { recursive: true });
copyFileSync("../../LICENSE", "dist/LICENSE");
writeFileSync("dist/cjs/package.json", '{"type": "commonjs"}\n');
await build({ ...browser, entryPoints: ["src/index.ts"], format: "cjs", outfile: "dist/cjs/hubbub.js" });
await build({ ...node, entryPoints: ["src/node.ts"], format: "cjs", outfile: "dist/cjs/node.js" });
await build({ ...browser, entryPoints: ["conformance/browser.ts"], outfile: "dist/conformance-browser.js" });
await build({ ...node, entryPoints: ["conformance/node.ts"], outfile: "dist/conformance-node.js" });
