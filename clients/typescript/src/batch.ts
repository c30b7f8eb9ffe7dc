/** Body of a request (docs/reference/format.md, "Batches"). */

import { toBase64 } from "./bytes.ts";
import type { Report } from "./encoder.ts";
import type { Metric } from "./metric.ts";

/** Least length of a body, so that its length reveals nothing about a report. */
const LEAST_BYTES = 512;

export function batchBody(metric: Metric, batchId: string, period: string, group: string, reports: readonly Report[]): string {
  const rows = new Uint8Array(reports.length * metric.kind.rowBytes);
  reports.forEach((report, index) => rows.set(report.bits, index * metric.kind.rowBytes));
  const body = JSON.stringify({
    batch_id: batchId,
    metric: metric.name,
    digest: metric.digest,
    period,
    cohorts: reports.map((report) => report.cohort),
    bits: toBase64(rows),
    ...(group ? { group } : {}),
  });
  return body.padEnd(LEAST_BYTES);
}
