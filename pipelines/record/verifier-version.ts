/**
 * Versions of the checks that score samples (recorded calls), and how the text and the evidence list of a card (an
 * endpoint's signed grade) depend on them. This file imports no schema, so that the page that recomputes grades in a
 * browser loads little code.
 */

/** Path and fragment of the page that describes the method, relative to the service's address. */
export const METHOD_PAGE = "/docs/verification-method#svc-grade-1";

/** Version of the checks that score samples, and of the rules by which a card lists samples as evidence. */
export const VERIFIER_VERSION = "touchstone-verifier-3";

/** The verifier version of a card that names none. */
export const FIRST_VERIFIER_VERSION = "touchstone-verifier-1";

/**
 * May a card of this verifier version list one answer in `evidence_sample` several times? Since version 2, equal
 * answers are listed once.
 */
export const listsRepeatedAnswers = (version: string): boolean => version === FIRST_VERIFIER_VERSION;

/**
 * Does a card of this verifier version call an endpoint silent in `why` if it answered without a readable 402, for
 * example with a 404? Cards of versions 1 and 2 do.
 */
export const countsUnreadableAsSilent = (version: string): boolean =>
  version === FIRST_VERIFIER_VERSION || version === "touchstone-verifier-2";
