/** Reporting periods: a UTC day, a week from Monday, a month. A period is named by its first day, ISO 8601. */

import { check } from "./errors.ts";

export type PeriodKind = "day" | "week" | "month";

export const DAY = 86_400_000;
const MONDAY = 3;

export function readPeriodKind(word: unknown): PeriodKind {
  check(word === "day" || word === "week" || word === "month", "period", word);
  return word;
}

const MAX_DAYS_KEPT = 100;
const daysKept = new Map<number, string>();

/** Day of a time in milliseconds, ISO 8601. The text is kept, because each recording asks for the same few days. */
export function isoDay(time: number): string {
  const day = Math.floor(time / DAY);
  let text = daysKept.get(day);
  if (text === undefined) {
    text = new Date(time).toISOString().slice(0, 10);
    if (daysKept.size >= MAX_DAYS_KEPT) daysKept.clear();
    daysKept.set(day, text);
  }
  return text;
}

/** First day of the period that contains a time in milliseconds. */
export function periodOf(kind: PeriodKind, time: number): string {
  const day = Math.floor(time / DAY);
  if (kind === "week") return isoDay((day - ((((day + MONDAY) % 7) + 7) % 7)) * DAY);
  return kind === "day" ? isoDay(time) : `${isoDay(time).slice(0, 8)}01`;
}

/** First day of the next period. */
export function nextPeriod(kind: PeriodKind, period: string): string {
  const first = new Date(`${period}T00:00:00Z`);
  if (kind === "month") first.setUTCMonth(first.getUTCMonth() + 1);
  else first.setUTCDate(first.getUTCDate() + (kind === "week" ? 7 : 1));
  return isoDay(first.getTime());
}

export const startOf = (period: string): number => Date.parse(`${period}T00:00:00Z`);

/** Number of a period: days since 1970-01-01, weeks since 1969-12-29, or months since 1970-01. */
export function periodNumber(kind: PeriodKind, period: string): number {
  const day = startOf(period) / DAY;
  if (kind === "day") return day;
  if (kind === "week") return Math.floor((day + MONDAY) / 7);
  const date = new Date(day * DAY);
  return 12 * (date.getUTCFullYear() - 1970) + date.getUTCMonth();
}
