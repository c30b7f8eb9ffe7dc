/**
 * Price of a metric, and the budget that pays for it. Every number here depends on definitions, policy and past periods only: if metrics
 * were charged against what others have left, the values of one would show in the reports of another.
 *
 * Sources: docs/explanation/privacy.md, "Privacy budget"; client/hubbub/privacy/allocation.py.
 */

import { HubbubError } from "./errors.ts";
import type { Labels } from "./groups.ts";
import type { Kind } from "./kinds.ts";
import type { Metric } from "./metric.ts";

/** Largest epsilon that a client may spend. Only the app's code sets it. */
export interface Policy {
  /** Of one report. */
  readonly epsilonReport: number;
  /** Of one definition under one secret. */
  readonly epsilonEnrollment: number;
  /** Of one definition over all enrollments. */
  readonly epsilonMetric: number;
  /** Of all definitions over all enrollments. */
  readonly epsilonTotal: number;
}

export const DEFAULT_POLICY: Policy = { epsilonReport: 3, epsilonEnrollment: 20, epsilonMetric: 40, epsilonTotal: 100 };

/** What the ledger charges: each distinct value, each epoch of `hold`, or each report. */
export type Unit = "value" | "epoch" | "period";

/** Ledger account of one definition. Spending is never reduced. Units and epsilons are over all enrollments. */
export interface Account {
  digest: string;
  metric: string;
  unit: Unit;
  epsilonPerUnit: number;
  units: number;
  reports: number;
  enrollment: number;
  /** Units of the total that belong to the account, spent or not. */
  reservedUnits: number;
  /** Units of them that earlier enrollments can have spent. */
  spentBeforeEnrollment: number;
  /** Why the metric is not collected, or "". */
  refused: string;
  /** Lowest limit of the metric's name that this client has seen, or null. */
  lifetimeEpsilon: number | null;
  /** Keyed tag of each distinct value that was reported in this enrollment. */
  tags: string[];
  /** Tag and encrypted key of the value reported last. */
  tag: string;
  sealed: string;
  /** Epoch charged last, the largest ever, and the number of the permanent response of the last. */
  epoch: number | null;
  newestEpoch: number | null;
  response: number | null;
  /** First period that is reported. */
  firstPeriod: string;
  /** Periods with a report, the newest last. A clock that is set back reopens none of them. */
  formed: string[];
  /** Value of the metric's group from each period on. */
  groups: Labels;
}

const SLACK = 1e-9;

export function checkPolicy(policy: Policy): Policy {
  for (const [name, value] of Object.entries(policy)) {
    if (typeof value !== "number" || !(value > 0) || value === Infinity) throw new HubbubError(`policy: ${name} must be a number above 0, got ${value}`);
  }
  return policy;
}

/** Privacy loss of t reports of one unchanging value; t may be infinite. */
export function epsilon(kind: Kind, reports: number): number {
  return kind.blocks.reduce((sum, { mechanism, possibleOnes }) => sum + mechanism.epsilon(possibleOnes, reports), 0);
}

export function unitPrice({ kind, hold }: Metric): { unit: Unit; epsilon: number } {
  if (hold !== null) return { unit: "epoch", epsilon: epsilon(kind, hold) };
  const isPermanent = kind.blocks[0]!.mechanism.hasPermanentNoise;
  return isPermanent ? { unit: "value", epsilon: epsilon(kind, Infinity) } : { unit: "period", epsilon: epsilon(kind, 1) };
}

/** Why the policy blocks a metric, or "". */
function objection(metric: Metric, policy: Policy): string {
  const [once, price] = [epsilon(metric.kind, 1), unitPrice(metric)];
  if (once > policy.epsilonReport + SLACK) {
    return `${metric.name}: a report costs epsilon = ${once.toFixed(3)}, above epsilonReport = ${policy.epsilonReport}: define the metric with more noise`;
  }
  const [name, limit] = Object.entries(policy)
    .filter(([each]) => each !== "epsilonReport")
    .sort(([, one], [, other]) => one - other)[0]!;
  if (price.epsilon > limit + SLACK) {
    return `${metric.name}: each ${price.unit} costs epsilon = ${price.epsilon.toFixed(3)}, above ${name} = ${limit}: define the metric with more noise`;
  }
  return "";
}

const affordable = (budget: number, price: number): number => Math.max(0, Math.floor((budget + SLACK) / price));

function policyUnits(policy: Policy, price: number, spent: number): number {
  return Math.min(affordable(policy.epsilonMetric, price), spent + affordable(policy.epsilonEnrollment, price));
}

/** Largest number of units spent at the end of the current period, whatever is recorded. The drafts of earlier enrollments are deleted. */
function maxUnitsSpent(account: Account, policy: Policy, enrollment: number): number {
  if (account.enrollment !== enrollment && account.unit !== "value") return account.units;
  const periods = account.unit === "value" ? account.reports : account.units;
  const most = policyUnits(policy, account.epsilonPerUnit, account.spentBeforeEnrollment);
  return Math.max(account.units, account.spentBeforeEnrollment, Math.min(account.reservedUnits, periods + 1, most));
}

export function newAccount(metric: Metric, firstPeriod: string): Account {
  const price = unitPrice(metric);
  return {
    digest: metric.digest,
    metric: metric.name,
    unit: price.unit,
    epsilonPerUnit: price.epsilon,
    units: 0,
    reports: 0,
    enrollment: 0,
    reservedUnits: 0,
    spentBeforeEnrollment: 0,
    refused: "",
    lifetimeEpsilon: null,
    tags: [],
    tag: "",
    sealed: "",
    epoch: null,
    newestEpoch: null,
    response: null,
    firstPeriod,
    formed: [],
    groups: {},
  };
}

/** Gives each metric that is collected its share of the total budget, in the order of the definitions; changes the accounts. */
export function allocate(policy: Policy, accounts: Record<string, Account>, metrics: readonly Metric[], enrollment: number): void {
  const all = Object.values(accounts);
  const kept = new Map(all.map((account) => [account.digest, maxUnitsSpent(account, policy, enrollment)]));
  const spentOf = (account: Account): number => kept.get(account.digest)! * account.epsilonPerUnit || 0;
  let left = policy.epsilonTotal - all.reduce((sum, account) => sum + spentOf(account), 0);
  const collected = new Set(metrics.map((metric) => metric.digest));
  for (const account of all) if (!collected.has(account.digest)) account.reservedUnits = kept.get(account.digest)!;
  for (const metric of metrics) {
    const account = accounts[metric.digest]!;
    const [spent, price] = [kept.get(metric.digest)!, account.epsilonPerUnit];
    if (account.enrollment !== enrollment) {
      Object.assign(account, { enrollment, spentBeforeEnrollment: spent, tags: [], tag: "", sealed: "", epoch: null, newestEpoch: null, response: null });
    }
    const versions = all.filter((each) => each.metric === metric.name);
    const limit = Math.min(metric.lifetimeEpsilon, ...versions.map((each) => each.lifetimeEpsilon ?? Infinity));
    account.lifetimeEpsilon = limit === Infinity ? null : limit;
    const leftOfName = limit - versions.reduce((sum, each) => sum + (each === account ? 0 : each.reservedUnits * each.epsilonPerUnit || 0), 0) - (spent * price || 0);
    let most = policyUnits(policy, price, account.spentBeforeEnrollment);
    if (account.unit === "value") most = Math.min(most, account.spentBeforeEnrollment + metric.kind.distinctValues);
    account.refused = objection(metric, policy);
    const granted = account.refused ? 0 : Math.max(0, Math.min(most - spent, affordable(Math.min(left, leftOfName), price)));
    if (!account.refused && spent + granted <= account.spentBeforeEnrollment) {
      account.refused = `${metric.name}: each ${account.unit} costs epsilon = ${price.toFixed(3)}, and too little is left of lifetime_epsilon, epsilonMetric or epsilonTotal`;
    }
    account.reservedUnits = spent + granted;
    left -= granted * price || 0;
  }
}

/** Whether one more unit may be spent in this enrollment. */
export function hasRoom(account: Account): boolean {
  const spent = account.unit === "value" ? account.spentBeforeEnrollment + account.tags.length : account.units;
  return spent < account.reservedUnits;
}
