/**
 * What a runner of GitHub reads on a step's output: workflow commands, and Markdown for the summary of the job
 * (docs.github.com, "Workflow commands for GitHub Actions"). Text of strangers must not become a command of its own.
 */

/** Something that a person should see beside the code: in red, in yellow, or as a remark. */
export interface Annotation {
  level: "error" | "warning" | "notice";
  title: string;
  message: string;
  /** Path in the repository that it is shown at; null: beside the job. */
  file: string | null;
}

const escapeData = (text: string): string =>
  text.replaceAll("%", "%25").replaceAll("\r", "%0D").replaceAll("\n", "%0A");

const escapeProperty = (text: string): string => escapeData(text).replaceAll(":", "%3A").replaceAll(",", "%2C");

/** `::error file=..,title=..::message`, one line, whatever stands in its parts. */
export function annotationLine({ level, title, message, file }: Annotation): string {
  const properties = { ...(file === null ? {} : { file }), title };
  const written = Object.entries(properties).map(([name, value]) => `${name}=${escapeProperty(value)}`);
  return `::${level} ${written.join(",")}::${escapeData(message)}`;
}

/**
 * Lines in which no command is read: between these two words of the runner, and without the sign of its older commands,
 * which are read anywhere in a line. @param token one that nobody can guess
 */
export const withoutCommands = (lines: readonly string[], token: string): string[] => [
  `::stop-commands::${token}`,
  ...lines.map((line) => line.replaceAll("##[", "## [")),
  `::${token}::`,
];

/** Text that Markdown shows as it stands (CommonMark section 2.4: any ASCII punctuation may have a backslash before it). */
export const inMarkdown = (text: string): string =>
  text.replace(/[\r\n]+/g, " ").replace(/[!-/:-@[-`{-~]/g, (char) => `\\${char}`);

/** A table of Markdown; the cells are text, never Markdown. */
export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const line = (cells: readonly string[]): string => `| ${cells.map(inMarkdown).join(" | ")} |`;
  return [line(head), `|${" --- |".repeat(head.length)}`, ...rows.map(line)];
}
