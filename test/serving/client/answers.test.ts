import { expectTypeOf, test } from "vitest";
import type { Standing } from "../../../pipelines/record/bodies.ts";
import type { SignedCard } from "../../../pipelines/record/card.ts";
import type * as Plain from "../../../serving/client/answers.ts";
import type { SearchOptions } from "../../../serving/client/ask.ts";
import type { CheckAnswer } from "../../../serving/schemas/check.ts";
import type { Dependency, ExposureReport } from "../../../serving/schemas/exposure.ts";
import type { SearchAnswer, SearchQuery } from "../../../serving/schemas/search.ts";
import type { FailuresAnswer } from "../../../serving/schemas/trust.ts";
import type { WatcherAnswer, WatcherMade } from "../../../serving/schemas/watchers.ts";

test("the shapes that the library declares are the ones that the service validates (told by npm run typecheck)", () => {
  expectTypeOf<Plain.CheckAnswer>().toEqualTypeOf<CheckAnswer>();
  expectTypeOf<Plain.SearchAnswer>().toEqualTypeOf<SearchAnswer>();
  expectTypeOf<SearchOptions>().toEqualTypeOf<Partial<Omit<SearchQuery, "q">>>();
  expectTypeOf<Plain.FailuresAnswer>().toEqualTypeOf<FailuresAnswer>();
  expectTypeOf<Plain.SignedCard>().toEqualTypeOf<SignedCard>();
  expectTypeOf<Plain.Dependency>().toEqualTypeOf<Dependency>();
  expectTypeOf<Plain.ExposureReport>().toEqualTypeOf<ExposureReport>();
  expectTypeOf<Plain.WatcherMade>().toEqualTypeOf<WatcherMade>();
  expectTypeOf<Plain.WatcherAnswer>().toEqualTypeOf<WatcherAnswer>();
  expectTypeOf<Plain.Standing>().toEqualTypeOf<Standing>();
  // What the comparison says of a member less.
  expectTypeOf<Omit<Plain.CheckAnswer, "buy">>().not.toEqualTypeOf<CheckAnswer>();
});
