/** One upload request, and what the aggregator answered. */

import { HubbubError } from "./errors.ts";

/** Answer to an upload. status : null if none could be read */
export interface UploadResponse {
  readonly status: number | null;
  /** Slug of the problem type of an aggregator's refusal, or "". */
  readonly problem: string;
  /** Id of the batch that an aggregator's acceptance names, or "". */
  readonly batchId: string;
  /** Headers Retry-After and Date, or "". */
  readonly retryAfter: string;
  readonly date: string;
}

/** Sends a body; `limit` ends the request. */
export type Transport = (body: string, limit: AbortSignal) => Promise<UploadResponse>;

const TIMEOUT = 10_000;
const MOST_BYTES = 65_536;
const PROBLEMS = "/problems/";
/** Field `status` of the answer to a batch that counts. */
const ACCEPTANCES: Readonly<Record<number, string>> = { 202: "stored", 200: "duplicate" };
export const NO_RESPONSE: UploadResponse = { status: null, problem: "", batchId: "", retryAfter: "", date: "" };

/** Raises HubbubError unless an address is https, or http on this machine. */
export function checkUrl(url: string): string {
  const { protocol, hostname, username, password } = URL.canParse(url) ? new URL(url) : new URL("invalid:");
  const isLocal = protocol === "http:" && ["localhost", "127.0.0.1", "[::1]"].includes(hostname);
  if ((protocol !== "https:" && !isLocal) || username || password || /[?#]/.test(url)) {
    throw new HubbubError(`url must be an https address without name, query and fragment, or http on this machine, got ${JSON.stringify(url)}`);
  }
  return url.replace(/\/+$/, "");
}

/** Transport by fetch: without cookies and referrer, and without following redirects. */
export function fetchTransport(url: string): Transport {
  const address = `${checkUrl(url)}/v1/reports`;
  return async (body, ended) => {
    const limit = new AbortController();
    const abort = (): void => limit.abort();
    const timer = setTimeout(abort, TIMEOUT);
    ended.addEventListener("abort", abort);
    try {
      const response = await fetch(address, {
        method: "POST",
        body,
        headers: { "Content-Type": "application/json", Connection: "close" }, // a connection for each report; a browser leaves this header out
        credentials: "omit",
        referrerPolicy: "no-referrer",
        redirect: "error",
        cache: "no-store",
        signal: limit.signal,
      });
      const text = await readBody(response, limit.signal);
      const header = (name: string): string => response.headers.get(name) ?? "";
      const { status } = response;
      return { status, ...readAnswer(status, header("content-type"), text), retryAfter: header("retry-after"), date: header("date") };
    } catch {
      return NO_RESPONSE;
    } finally {
      clearTimeout(timer);
      ended.removeEventListener("abort", abort);
    }
  };
}

/** Text of a body; throws if it is longer than MOST_BYTES or not UTF-8. Cancels what it reads itself: Node 20 may forget a signal after the headers. */
async function readBody(response: Response, limit: AbortSignal): Promise<string> {
  const reader = response.body!.getReader();
  const cancel = (): void => void reader.cancel().catch(() => undefined);
  limit.addEventListener("abort", cancel);
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let left = MOST_BYTES; left >= 0; ) {
    const { done, value } = await reader.read();
    limit.throwIfAborted();
    if (done) return text + decoder.decode();
    left -= value.length;
    text += decoder.decode(value, { stream: true });
  }
  cancel();
  throw new RangeError();
}

/** What an aggregator's answer says; "" of any other (docs/reference/format.md, "Answers to a batch"). */
export function readAnswer(status: number, contentType: string, text: string): { problem: string; batchId: string } {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch {
    // a proxy's page
  }
  const { type, status: named, batch_id: batchId } = Object(document) as Record<string, unknown>;
  const media = contentType.split(";")[0]!.trim().toLowerCase();
  const isProblem = media === "application/problem+json" && named === status && typeof type === "string" && type.startsWith(PROBLEMS);
  const isAcceptance = media === "application/json" && named !== undefined && named === ACCEPTANCES[status] && typeof batchId === "string";
  return { problem: isProblem ? type.slice(PROBLEMS.length) : "", batchId: isAcceptance ? batchId : "" };
}
