/** The label of each period: the value of a metric's group that its reports have (docs/reference/format.md, "Labels"). */

import { nextPeriod, type PeriodKind } from "./periods.ts";

/**
 * Value of the group from each period on, in their order. The last is that of the period after the last run, which says what that run was.
 * A state that an earlier version wrote has one: of the period that was open.
 */
export type Labels = Record<string, string>;

/** More than the periods of which reports are still built. */
const MAX_STEPS = 64;

/** Label of a period; that of the first step if the period is earlier, and "" without any. */
export function labelOf(labels: Labels, period: string): string {
  const steps = Object.entries(labels);
  return (steps.filter(([start]) => start <= period).at(-1) ?? steps[0])?.[1] ?? "";
}

/**
 * Labels after a run of the app with a value in a period. isStart : whether the app was started, or consent given; else it runs on, and only a
 * period that no run has reached gets its label
 */
export function afterRun(labels: Labels, kind: PeriodKind, current: string, value: string, isStart: boolean): Labels {
  const next = nextPeriod(kind, current);
  const steps = Object.entries(labels);
  if (steps.length === 1) steps.push([nextPeriod(kind, steps[0]![0]), steps[0]![1]]);
  const last = steps.at(-1)?.[0] ?? "";
  const wasAhead = last > nextPeriod(kind, next);
  if (current < last && !wasAhead) return isStart ? { ...Object.fromEntries(steps), [last]: value } : labels;
  const until: [string, string][] = [...steps.filter(([start]) => start < current), [current, value]];
  const changes = until.filter(([, label], index) => label !== until[index - 1]?.[1]);
  return Object.fromEntries([...changes, [next, value] as [string, string]].slice(-MAX_STEPS));
}
