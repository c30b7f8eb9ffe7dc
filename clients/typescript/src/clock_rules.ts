/** Limits beyond which a client does not believe a clock, in milliseconds. A test writes them: tests/contracts/test_clock_rules.py. */

/** 2026-01-01 */
export const EARLIEST_DAY = 1_767_225_600_000;
/** 9998-12-31 */
export const LATEST_DAY = 253_370_678_400_000;
/** 1 day */
export const CLOCK_TOLERANCE = 86_400_000;
/** 1 day */
export const OPEN_BEFORE = 86_400_000;
/** 40 days */
export const MAX_SEND_DELAY = 3_456_000_000;
