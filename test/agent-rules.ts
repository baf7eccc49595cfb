import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { DEFAULT_POLICY } from "../serving/client/policy.ts";

/**
 * The flags that every text for agents refuses, in the places where agents copy it from: those of the client library's
 * policy. A test holds the pages against this; `npx tsx test/agent-rules.ts` writes them anew.
 */
const ROOT = resolve(import.meta.dirname, "..");

/** Each page, and whether its rule stands in a script or in words. */
export const RULED = {
  "README.md": "script",
  "docs/integrations.md": "script",
  "docs/skill.md": "words",
  "docs/cursor-rule.md": "words",
} as const;

const { flags } = DEFAULT_POLICY;
const last = flags.at(-1)!;

/** As a script has it: two lines, since the README's has ten. */
const scripted = (): string => {
  const [first, second] = [flags.slice(0, 4), flags.slice(4)].map((some) => some.map((flag) => `"${flag}"`).join(", "));
  return `const never = [${first},\n    ${second}];`;
};

const worded = (): string =>
  `Whatever the letter, never pay where \`flags\` has ${flags
    .slice(0, -1)
    .map((flag) => `\`${flag}\``)
    .join(", ")} or \`${last}\``;

const RULES = {
  script: { pattern: /const never = \[[^\]]*\];/g, text: scripted() },
  words: { pattern: /Whatever the letter, never pay where `flags` has (?:`\w+`(?:, | or )?)+/g, text: worded() },
};

/** A page's text as it is, and as it has to be. @throws Error unless the rule stands there once */
export function ruled(page: keyof typeof RULED): { is: string; should: string } {
  const is = readFileSync(join(ROOT, page), "utf8");
  const { pattern, text } = RULES[RULED[page]];
  const places = is.match(pattern)?.length ?? 0;
  if (places !== 1) throw new Error(`${page} has the rule ${places} times`);
  return { is, should: is.replace(pattern, () => text) };
}

if (process.argv[1] === import.meta.filename) {
  for (const page of Object.keys(RULED) as (keyof typeof RULED)[]) writeFileSync(join(ROOT, page), ruled(page).should);
}
