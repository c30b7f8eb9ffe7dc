/** A definition, an option or an address that a client must refuse. The message has the value, the rule and the next step. */
export class HubbubError extends Error {
  override name = "HubbubError";
}

/** A value that a metric does not accept. The message never has the value. */
export class InvalidValueError extends HubbubError {
  override name = "InvalidValueError";
}

/** Raises HubbubError unless a field of a definition is allowed (docs/reference/format.md, "Allowed definitions"). */
export function check(isAllowed: boolean, field: string, given: unknown): asserts isAllowed {
  if (!isAllowed) {
    throw new HubbubError(`${field} must not be ${JSON.stringify(given)}: check the definitions by hubbub metrics check, and write them again`);
  }
}
