// A shop that asks before it records: hubbub.js is the bundle of clients/typescript, metrics.json is what
// `hubbub metrics show metrics.toml --json` prints.
import { Client, IndexedDbStorage } from "./hubbub.js";

const definitions = await (await fetch("metrics.json")).json();
const client = new Client({ definitions, url: "http://127.0.0.1:8000", storage: new IndexedDbStorage() });
const element = (id) => document.getElementById(id);
let inBasket = 0;

async function show() {
  const { consent, consentTime, paused, queued, sent, ledger } = await client.inspect();
  element("question").hidden = consentTime > 0;
  element("change").hidden = consentTime === 0;
  element("change").textContent = consent === "on" ? "Stop, and delete what was not sent" : "Let this shop learn what is used";
  const spent = ledger.reduce((sum, { units, epsilonPerUnit }) => sum + units * epsilonPerUnit, 0);
  element("state").textContent =
    consent === "off"
      ? "Nothing is recorded."
      : `${paused || "Recording."} Requests that wait: ${queued.length}. Sent: ${sent.length}. Epsilon spent: ${spent.toFixed(1)}.`;
  element("sent").textContent = [...queued, ...sent].join("\n");
}

async function decide(level) {
  await client.setConsent(level, "shop notice 1");
  await show();
}

element("agree").addEventListener("click", () => decide("on"));
element("refuse").addEventListener("click", () => decide("off"));
element("change").addEventListener("click", async () => decide((await client.inspect()).consent === "on" ? "off" : "on"));

for (const button of document.querySelectorAll("[data-department]")) {
  button.addEventListener("click", () => {
    element("shelf-title").textContent = button.textContent;
    client.record("department", button.dataset.department).then(show);
  });
}

element("buy").addEventListener("click", () => {
  inBasket += 1;
  element("basket").value = inBasket;
  client.record("basket", inBasket).then(show);
});

await client.started;
await show();
setInterval(show, 5000);
