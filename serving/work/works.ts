import { researchBrief } from "./brief/research-brief.ts";
import { companiesLookup } from "./companies.ts";
import { docsExtract } from "./docs-extract.ts";
import { webEvidence } from "./web-evidence.ts";
import type { Work } from "./work.ts";

/** Paid operations that are done here, in the order of the interface. */
export const WORKS: readonly Work[] = [docsExtract, companiesLookup, webEvidence, researchBrief];
