import type { Service } from "../context.ts";
import { toolsOf } from "../mcp/tools.ts";
import { isDescribed, methodOf, tagOf, templateOf } from "../operations/described.ts";
import { type Operation, TAGS, type Tag } from "../operations/operation.ts";
import { ABOUT } from "./about.ts";

/** /llms.txt (llmstxt.org): what is here, in Markdown, for a model that reads before it asks. */
export function llmsText(operations: readonly Operation[], { baseUrl, docs }: Service): string {
  const described = operations.filter(isDescribed);
  const row = (operation: Operation): string => {
    const path = templateOf(operation);
    const name = `${methodOf(operation)} ${path}`;
    const linked = operation.method === undefined && !path.includes("{");
    return `- ${linked ? `[${name}](${baseUrl}${path})` : `\`${name}\``}: ${operation.summary}`;
  };
  const section = ([tag, about]: [string, string]): string[] => {
    const rows = described.filter((operation) => tagOf(operation) === (tag as Tag)).map(row);
    return rows.length > 0 ? [`## ${about}`, "", ...rows, ""] : [];
  };
  const pages = [...docs].flatMap(([name, { title }]) => (title ? [`- [${title}](${baseUrl}/docs/${name})`] : []));
  return [
    `# ${ABOUT.name}`,
    "",
    `> ${ABOUT.summary}`,
    "",
    ABOUT.description,
    "",
    ...Object.entries(TAGS).flatMap(section),
    `## Tools of the MCP server at ${baseUrl}/mcp`,
    "",
    ...toolsOf(operations).map(({ name, description }) => `- \`${name}\`: ${description}`),
    "",
    "## Documentation",
    "",
    ...pages,
    "",
  ].join("\n");
}
