import { FastResponse } from "srvx";
import { FORM_HEADERS } from "../pages/layout.ts";
import { Problem } from "./problem.ts";
import { HTML_TYPE } from "./reply.ts";

/** A form that makes us do something, so another site's page may not have its readers send it. @throws Problem */
export function refuseOtherSites({ headers }: { headers: Headers }): void {
  if (headers.get("sec-fetch-site") !== "cross-site") return;
  throw new Problem("bad_request", "the form was sent from another site's page");
}

/** The answer to a form that was sent: a page with the form on it, kept by nobody. */
export const formAnswer = (text: string, status: number, headers: Record<string, string>): Response =>
  new FastResponse(text, {
    status,
    headers: {
      "content-type": HTML_TYPE,
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      ...FORM_HEADERS,
      ...headers,
    },
  });
