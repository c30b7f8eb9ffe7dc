/** Definition of a metric as `hubbub metrics show --json` and `GET /v1/metrics` print it, checked; its digest and its public label. */

import { toHex } from "./bytes.ts";
import { check, HubbubError } from "./errors.ts";
import { sha256 } from "./hashes.ts";
import { type Fields, type Kind, readKind, requireName } from "./kinds.ts";
import { type PeriodKind, readPeriodKind } from "./periods.ts";

/** JSON object of one metric, as `hubbub metrics show metrics.toml --json` prints it. */
export type Definition = Readonly<Record<string, unknown>>;

/** Public label of a metric's reports: a closed list of values, sent in clear. */
interface Group {
  readonly name: string;
  readonly values: readonly string[];
}

export class Metric {
  readonly name: string;
  readonly kind: Kind;
  readonly period: PeriodKind;
  /** Periods that share a permanent response; null: a value has one for good. */
  readonly hold: number | null;
  /** First day on which nothing is recorded any more, or null. */
  readonly expires: string | null;
  /** Largest epsilon of all versions of the metric in a client's life, or infinity. */
  readonly lifetimeEpsilon: number;
  readonly group: Group | null;
  /** Hex of SHA-256; clients use it for everything. */
  readonly digest: string;

  constructor(definition: Definition) {
    const { name } = definition;
    requireName(name);
    this.name = name;
    try {
      this.kind = readKind(definition);
      this.period = readPeriodKind(definition["period"]);
      this.hold = readHold(definition["hold"] ?? null);
      this.group = readGroup(definition["group"] ?? null, this.kind);
      this.lifetimeEpsilon = readLimit(definition["lifetime_epsilon"]);
      this.expires = readDay(definition["expires"] ?? null);
    } catch (problem) {
      throw problem instanceof HubbubError ? new HubbubError(`${name}: ${problem.message}`) : problem;
    }
    const fields = {
      ...this.kind.canonical,
      name,
      period: this.period,
      hold: this.hold,
      ...(this.group ? { group: { name: this.group.name, values: this.group.values } } : {}),
    };
    this.digest = toHex(sha256(new TextEncoder().encode(`hubbub-metric-v1\n${asciiJson(fields)}`)));
    const given = definition["digest"];
    if (given !== undefined && given !== this.digest) {
      throw new HubbubError(`${name}: the definition does not have its digest ${String(given)}: it was changed after it was written, or a newer hubbub wrote it`);
    }
  }

  /** Whether the metric no longer collects on a day. */
  hasExpired(day: string): boolean {
    return this.expires !== null && day >= this.expires;
  }

  /** Value of the group that stands for a label of the app; "" without a group. */
  groupValue(labels: Readonly<Record<string, string>>): string {
    if (!this.group) return "";
    const label = Object.hasOwn(labels, this.group.name) ? labels[this.group.name] : undefined;
    if (label === undefined) {
      throw new HubbubError(`${this.name}: the metric has the group ${this.group.name}: pass groups: { ${this.group.name}: ... }`);
    }
    if (this.group.values.includes(label)) return label;
    const families = this.group.values.filter((value) => value.endsWith(".x") && `${label}.`.startsWith(value.slice(0, -1)));
    return families.sort((a, b) => b.length - a.length)[0] ?? "other";
  }
}

function readHold(hold: unknown): number | null {
  check(hold === null || (typeof hold === "number" && Number.isInteger(hold) && hold >= 1), "hold", hold);
  return hold;
}

function readLimit(limit: unknown): number {
  if (limit === undefined || limit === null) return Infinity;
  check(typeof limit === "number" && limit > 0, "lifetime_epsilon", limit);
  return limit;
}

function readDay(day: unknown): string | null {
  check(day === null || (typeof day === "string" && /^\d{4}-\d\d-\d\d$/.test(day)), "expires", day);
  return day;
}

function readGroup(group: unknown, kind: Kind): Group | null {
  if (group === null) return null;
  const { name, values } = group as Record<string, unknown>;
  const isValue = (value: unknown): boolean => typeof value === "string" && /^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$/.test(value);
  check(typeof name === "string" && /^[a-z][a-z0-9_]{0,31}$/.test(name) && name !== "period", "group", name);
  check(Array.isArray(values) && values.length >= 2 && values.length <= 16 && values.every(isValue), "group", values);
  check(new Set(values).size === values.length && values.includes("other"), "group", values);
  check(kind.takesGroup, "group", name);
  return { name, values: values as string[] };
}

/** JSON in ASCII with sorted keys and no spaces. */
function asciiJson(value: unknown): string {
  const sorted = (each: unknown): unknown => {
    if (Array.isArray(each)) return each.map(sorted);
    if (typeof each !== "object" || each === null) return each;
    const fields = each as Fields;
    return Object.fromEntries(Object.keys(fields).sort().map((key) => [key, sorted(fields[key])]));
  };
  return JSON.stringify(sorted(value)).replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
