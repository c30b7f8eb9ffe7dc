// The Node client behind the paths of `hosts.APP`: a primary process forks workers, and each has a client on the same directory.
// node served.mjs BUNDLE WORKERS, with $AGGREGATOR
import cluster from "node:cluster";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import process from "node:process";

const [bundle, workers] = process.argv.slice(2);

// The workers accept connections themselves: a primary would hand some to a worker that was killed, and they would never end.
cluster.schedulingPolicy = cluster.SCHED_NONE;

async function serve() {
  const { Client, FileStorage } = await import(bundle);
  const client = new Client({
    definitions: JSON.parse(readFileSync("definitions.json", "utf8")),
    url: process.env.AGGREGATOR,
    storage: new FileStorage("state"),
    policy: { epsilonReport: 1e6, epsilonEnrollment: 1e6, epsilonMetric: 1e6, epsilonTotal: 1e6 },
    pauseWhenAutomated: false,
    clock: () => Date.parse(readFileSync("clock", "utf8")),
  });
  await client.setConsent("on");
  const calls = {
    record: async () => {
      await client.record("homepage", "https://example.org/");
    },
    flush: () => client.flush(1),
    inspect: async () => {
      const { counts, ledger, queued } = await client.inspect();
      const { chosen, superseded, ignored, formed, acknowledged } = counts;
      const charged = ledger.reduce((sum, account) => sum + account.units, 0);
      return { recorded: chosen + superseded, ignored, formed, acknowledged, queued: queued.length, charged };
    },
  };
  const server = createServer(async (request, response) => {
    const answer = await calls[request.url.split("/")[1]]();
    response.end(JSON.stringify(answer ?? null));
  });
  server.listen(Number(process.env.PORT), "127.0.0.1", () => console.log(`listening on 127.0.0.1:${process.env.PORT}`));
}

if (cluster.isPrimary) {
  // A free port: workers that listen to port 0 would get another one after all of them were killed.
  const finder = createServer().listen(0, "127.0.0.1", () => {
    const PORT = finder.address().port;
    finder.close(() => {
      for (let number = 0; number < Number(workers); number++) cluster.fork({ PORT });
      cluster.on("exit", () => cluster.fork({ PORT }));
    });
  });
} else {
  await serve();
}
