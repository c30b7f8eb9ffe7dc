/** One upload request, and what the aggregator answered. */

import { HubbubError } from "./errors.ts";

/** Answer to an upload. status : null if none could be read */
export interface UploadResponse {
  readonly status: number | null;
  /** Last part of the `type` of a problem document (RFC 9457), or "". */
  readonly problem: string;
  readonly batchId: string;
  /** Headers Retry-After and Date, or "". */
  readonly retryAfter: string;
  readonly date: string;
}

/** Sends a body; `limit` ends the request. */
export type Transport = (body: string, limit: AbortSignal) => Promise<UploadResponse>;

const TIMEOUT = 10_000;
const MOST_BYTES = 65_536;
const LONGEST_PROBLEM = 80;
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
        headers: { "Content-Type": "application/json" },
        credentials: "omit",
        referrerPolicy: "no-referrer",
        redirect: "error",
        cache: "no-store",
        signal: limit.signal,
      });
      const text = await readBody(response, limit.signal);
      const header = (name: string): string => response.headers.get(name) ?? "";
      return { status: response.status, ...readDocument(text), retryAfter: header("retry-after"), date: header("date") };
    } catch {
      return NO_RESPONSE;
    } finally {
      clearTimeout(timer);
      ended.removeEventListener("abort", abort);
    }
  };
}

/** Text of a body, at most MOST_BYTES of it. Cancels what it reads itself: Node 20 may forget a signal after the headers. */
async function readBody(response: Response, limit: AbortSignal): Promise<string> {
  const reader = response.body!.getReader();
  const cancel = (): void => void reader.cancel().catch(() => undefined);
  limit.addEventListener("abort", cancel);
  const decoder = new TextDecoder();
  let text = "";
  for (let length = 0; length < MOST_BYTES; ) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.length;
    text += decoder.decode(value, { stream: true });
  }
  cancel();
  limit.throwIfAborted();
  return text;
}

function readDocument(text: string): { problem: string; batchId: string } {
  let document: unknown = null;
  try {
    document = JSON.parse(text);
  } catch {
    // a proxy's page
  }
  const { type, batch_id: batchId } = (typeof document === "object" && document !== null ? document : {}) as Record<string, unknown>;
  const problem = typeof type === "string" ? (/([a-z0-9-]{1,64})\/?$/.exec(type.slice(-LONGEST_PROBLEM))?.[1] ?? "") : "";
  return { problem, batchId: typeof batchId === "string" ? batchId : "" };
}
