import type { z } from "zod";
import { Component, Components, SignedCard } from "../../pipelines/record/card.ts";
import { GradeLeaf, IndexLine } from "../../pipelines/record/leaf.ts";
import { ArchiveList, ArchiveManifest } from "./archive.ts";
import { Advertised, Buy, CheckAnswer, Observed, Payee } from "./check.ts";
import { Band, Correction, Defect, ProblemDocument, Tier } from "./common.ts";
import { ExposureLine, ExposurePayee, ExposureReport, ExposureRequest } from "./exposure.ts";
import { KeysDocument } from "./keys.ts";
import { DisputeReceipt, TrustResponse } from "./trust.ts";

/**
 * Schemas that descriptions of the API call by a name of their own; wherever one of them stands in another it is referred
 * to. What an operation takes or answers and is not named here is called after the operation.
 */
export const NAMED: Readonly<Record<string, z.ZodType>> = {
  Advertised,
  ArchiveList,
  ArchiveManifest,
  Band,
  Buy,
  CheckAnswer,
  Component,
  Components,
  Correction,
  Defect,
  DisputeReceipt,
  ExposureLine,
  ExposurePayee,
  ExposureReport,
  ExposureRequest,
  Grade: GradeLeaf,
  IndexLine,
  Keys: KeysDocument,
  Observed,
  Payee,
  Problem: ProblemDocument,
  Scorecard: SignedCard,
  Tier,
  TrustResponse,
};
