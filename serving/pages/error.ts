import { html } from "hono/html";
import { PROBLEMS, type Problem } from "../http/problem.ts";
import { page } from "./layout.ts";

/** A problem for a person: what a problem document says, as a page. */
export function errorPage(problem: Problem): string {
  const { status, title } = PROBLEMS[problem.code];
  return page({
    title: `${status}: ${title}`,
    body: html`<h1>${title}</h1><p>${problem.message}</p><p class="soft">${status}</p>`,
  });
}
