/** Why a row of a catalogue, a seller's document or an operator's file is no listing. A set that grows. */
export const REASONS = {
  not_json: "the line is not JSON",
  not_an_item: "the row is neither an object nor an address",
  no_list: "the document names no paid endpoint in any form that is read",
  no_address: "the row names no address",
  relative: "the address is relative, and nothing says what to",
  not_http: "the address is not http or https",
  bad_url: "the address cannot be parsed, or is longer than the record takes",
  not_public: "the address is not one of the public internet",
  verb: "the method is none that is ever sent",
  domain_full: "its domain has as many endpoints as discovery may bring; an operator may add more",
  too_many: "the source names more rows than are read",
  unkeepable: "the row cannot be written in one way: nested too deep, or a number past 2^53",
} as const;
export type Reason = keyof typeof REASONS;

/** A row that was not taken: whole, with the reason, so that nothing is lost. */
export interface Rejected {
  reason: Reason;
  says: string;
  row: unknown;
}

export const rejected = (reason: Reason, row: unknown, more?: string): Rejected => ({
  reason,
  says: more === undefined ? REASONS[reason] : `${REASONS[reason]}: ${more.slice(0, 300)}`,
  row,
});

/** How many of each reason, in the order of the table. */
export function countReasons(rows: readonly Rejected[]): Partial<Record<Reason, number>> {
  const counts: Partial<Record<Reason, number>> = {};
  for (const name of Object.keys(REASONS) as Reason[]) {
    const n = rows.reduce((sum, row) => sum + (row.reason === name ? 1 : 0), 0);
    if (n > 0) counts[name] = n;
  }
  return counts;
}
