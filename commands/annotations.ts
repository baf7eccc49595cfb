/**
 * Output for GitHub Actions: workflow commands, and Markdown for the job summary (docs.github.com, "Workflow commands
 * for GitHub Actions"). Text from endpoints is escaped, so that it cannot become a workflow command.
 */

/** An annotation that GitHub shows beside the code: an error, a warning or a notice. */
export interface Annotation {
  level: "error" | "warning" | "notice";
  title: string;
  message: string;
  /** Path of the file beside which GitHub shows the annotation; null: GitHub shows it with the job. */
  file: string | null;
}

const escapeData = (text: string): string =>
  text.replaceAll("%", "%25").replaceAll("\r", "%0D").replaceAll("\n", "%0A");

const escapeProperty = (text: string): string => escapeData(text).replaceAll(":", "%3A").replaceAll(",", "%2C");

/**
 * Formats an annotation as one workflow command: `::error file=..,title=..::message`. Line breaks in the title, the
 * message and the path are escaped.
 */
export function annotationLine({ level, title, message, file }: Annotation): string {
  const properties = { ...(file === null ? {} : { file }), title };
  const encodedProperties = Object.entries(properties).map(([name, value]) => `${name}=${escapeProperty(value)}`);
  return `::${level} ${encodedProperties.join(",")}::${escapeData(message)}`;
}

/**
 * Wraps lines so that the GitHub runner executes no workflow command in them. The runner ignores commands of the form
 * `::name::` between the lines `::stop-commands::TOKEN` and `::TOKEN::`. It recognises the older form `##[name]`
 * anywhere in a line, so `##[` is printed as `## [`.
 * @param token a random text that the lines cannot contain by chance
 */
export const disableCommands = (lines: readonly string[], token: string): string[] => [
  `::stop-commands::${token}`,
  ...lines.map((line) => line.replaceAll("##[", "## [")),
  `::${token}::`,
];

/** Escapes text for Markdown (CommonMark section 2.4: any ASCII punctuation may have a backslash before it). */
export const escapeMarkdown = (text: string): string =>
  text.replace(/[\r\n]+/g, " ").replace(/[!-/:-@[-`{-~]/g, (char) => `\\${char}`);

/** Formats a Markdown table. The cells are plain text, and are escaped. */
export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const line = (cells: readonly string[]): string => `| ${cells.map(escapeMarkdown).join(" | ")} |`;
  return [line(head), `|${" --- |".repeat(head.length)}`, ...rows.map(line)];
}
