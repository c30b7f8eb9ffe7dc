// The hash functions against those of OpenSSL: node --test test
import assert from "node:assert/strict";
import { createHash, randomBytes, randomInt } from "node:crypto";
import { test } from "node:test";
import { build } from "esbuild";

const { outputFiles } = await build({ entryPoints: ["src/hashes.ts"], bundle: true, format: "esm", write: false });
const { sha256, shake256 } = await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);

test("all lengths around the blocks of each function, and random messages", () => {
  const lengths = [...Array(600).keys(), ...Array.from({ length: 200 }, () => randomInt(100_000))];
  for (const length of lengths) {
    const [message, wanted] = [new Uint8Array(randomBytes(length)), randomInt(1, 600)];
    const of = (name, options) => new Uint8Array(createHash(name, options).update(message).digest());
    assert.deepEqual(sha256(message), of("sha256"), `sha256 of ${length} bytes`);
    assert.deepEqual(shake256(message, wanted), of("shake256", { outputLength: wanted }), `${wanted} bytes of shake256 of ${length} bytes`);
  }
});

test("no constant is so near to another integer that engines could round to it", () => {
  for (let number = 2; number < 312; number++) {
    for (const value of [Math.sqrt(number), Math.cbrt(number)]) {
      const rest = (value * 2 ** 32) % 1;
      assert.ok(Number.isInteger(value) || Math.min(rest, 1 - rest) > 2 ** -18, `${number}: ${value}`);
    }
  }
});
