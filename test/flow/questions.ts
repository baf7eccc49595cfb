/** A seller of the market, or one of several where the letter decides. */
type Sellers = readonly string[];

/** Sellers of sums that are honest and answer: which of them comes first is decided by what was measured. */
const SUMS: Sellers = ["honest-v2", "slow", "v2-in-body", "mpp", "both", "mcp-paid", "dear"];

/**
 * Twenty questions that a stranger's agent asks of the demo's market, as it would word them, and who should come first;
 * null: nobody sells it. They were written before the search was tuned, and stay as they were written.
 */
export const QUESTIONS: readonly { q: string; first: Sellers | null }[] = [
  { q: "hash a text with SHA-256", first: ["encoder"] },
  { q: "sha256", first: ["encoder"] },
  { q: "SHA 256 digest", first: ["encoder"] },
  { q: "SHA-256 eines Textes", first: ["encoder"] },
  { q: "cheapest arithmetic", first: ["slow"] },
  { q: "add two numbers", first: SUMS },
  { q: "fastest way to add numbers", first: SUMS.filter((name) => name !== "slow") },
  { q: "calculator", first: SUMS },
  { q: "sum, at most 0.006 USDC", first: ["slow"] },
  { q: "MCP tool for addition", first: ["mcp-paid"] },
  { q: "web page to text", first: ["scraper"] },
  { q: "scrape a website", first: ["scraper"] },
  { q: "read the contents of a url", first: ["scraper"] },
  { q: "block hash", first: ["chain-reader"] },
  { q: "hashes of blockchain blocks", first: ["chain-reader"] },
  { q: "chat with an LLM", first: ["parrot"] },
  { q: "quote of the day", first: ["honest-v1"] },
  { q: "proverbs", first: ["honest-v1"] },
  {
    q: "what can I buy under one cent on base",
    first: [...["encoder", "scraper", "chain-reader", "parrot", "honest-v1"], ...["slow", "mpp", "both", "mcp-paid"]],
  },
  { q: "weather for a city", first: null },
];

/** So many of them are answered rightly first. */
export const LEAST_RIGHT = 18;
