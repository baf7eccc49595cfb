/**
 * Versions of the checks that score samples, and what a card says or lists by them. Without a schema, so that the proof in a
 * browser can grade with them.
 */

/** Path and fragment of the method's description, under the service's own address. */
export const METHOD_PAGE = "/docs/verification-method#svc-grade-1";

/** Version of the checks that scored the samples, and of the rules by which a card lists them. */
export const VERIFIER_VERSION = "touchstone-verifier-3";

/** The verifier version of a card that names none. */
export const FIRST_VERIFIER_VERSION = "touchstone-verifier-1";

/**
 * Does a card of this verifier version list an answer in `evidence_sample` as often as it came? From version 2 on each
 * answer is listed once.
 */
export const listsRepeatedAnswers = (version: string): boolean => version === FIRST_VERIFIER_VERSION;

/**
 * Does `why` in this verifier version call an endpoint silent that answered without a readable 402, for example with a
 * 404? Versions 1 and 2 do.
 */
export const callsUnreadableAnswersSilent = (version: string): boolean =>
  version === FIRST_VERIFIER_VERSION || version === "touchstone-verifier-2";
