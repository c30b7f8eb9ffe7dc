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

export type Transport = (body: string) => Promise<UploadResponse>;

const TIMEOUT = 10_000;
const MOST_CHARACTERS = 65_536;
export const NO_RESPONSE: UploadResponse = { status: null, problem: "", batchId: "", retryAfter: "", date: "" };

/** Raises HubbubError unless an address is https, or http on this machine. */
export function checkUrl(url: string): string {
  const { protocol, hostname, username, search, hash } = URL.canParse(url) ? new URL(url) : new URL("invalid:");
  const isLocal = protocol === "http:" && ["localhost", "127.0.0.1", "[::1]"].includes(hostname);
  if ((protocol !== "https:" && !isLocal) || username || search || hash) {
    throw new HubbubError(`url must be an https address without name, query and fragment, or http on this machine, got ${JSON.stringify(url)}`);
  }
  return url.replace(/\/+$/, "");
}

/** Transport by fetch: without cookies and referrer, and without following redirects. */
export function fetchTransport(url: string): Transport {
  const address = `${checkUrl(url)}/v1/reports`;
  return async (body) => {
    try {
      const response = await fetch(address, {
        method: "POST",
        body,
        headers: { "Content-Type": "application/json" },
        credentials: "omit",
        referrerPolicy: "no-referrer",
        redirect: "error",
        cache: "no-store",
        signal: AbortSignal.timeout(TIMEOUT),
      });
      const text = (await response.text()).slice(0, MOST_CHARACTERS);
      const header = (name: string): string => response.headers.get(name) ?? "";
      return { status: response.status, ...readDocument(text), retryAfter: header("retry-after"), date: header("date") };
    } catch {
      return NO_RESPONSE;
    }
  };
}

function readDocument(text: string): { problem: string; batchId: string } {
  let document: unknown = null;
  try {
    document = JSON.parse(text);
  } catch {
    // a proxy's page
  }
  const { type, batch_id: batchId } = (typeof document === "object" && document !== null ? document : {}) as Record<string, unknown>;
  const problem = typeof type === "string" ? type.replace(/\/+$/, "").split("/").at(-1)! : "";
  return { problem, batchId: typeof batchId === "string" ? batchId : "" };
}
