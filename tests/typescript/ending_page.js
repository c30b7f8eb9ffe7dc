// A page that records as it ends: ending_page.html#WAY (tests/typescript/test_page_end.py).
import { Client, IndexedDbStorage } from "/hubbub.js";

const definitions = await (await fetch("/metrics.json")).json();
const client = new Client({ definitions, url: "http://127.0.0.1:9", storage: new IndexedDbStorage(), pauseWhenAutomated: false, requirePersistence: false });
const record = () => client.record("page", "http://canary.example/secret");
const [way, consent] = location.hash.slice(1).split(",");
const leave = () => document.querySelector("a").click();

if (way === "early") {
  record();
  leave();
}
await client.started;
if (consent) await client.setConsent(consent);
addEventListener("pagehide", () => (way === "pagehide" || way === "close") && record());
document.addEventListener("visibilitychange", () => way === "visibilitychange" && record());
document.querySelector("a").addEventListener("click", () => way === "click" && record());
document.querySelector("form").addEventListener("submit", () => way === "submit" && record());

/** Ends the page in its way. */
globalThis.end = async () => {
  if (way === "awaited") await record();
  if (way === "close") close();
  else if (way === "submit") document.querySelector("form").requestSubmit();
  else leave();
};
globalThis.client = client;
globalThis.record = record;
