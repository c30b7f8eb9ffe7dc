/** A definition, an option or an address that a client must refuse. The message has the value, the rule and the next step. */
export class HubbubError extends Error {
  override name = "HubbubError";
}

/** A value that a metric does not accept. The message never has the value. */
export class InvalidValueError extends HubbubError {
  override name = "InvalidValueError";
}
