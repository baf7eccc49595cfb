import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { type Browser, chromium } from "playwright-core";

/** Path of `chromium` in PATH, or null. */
export function chromiumPath(path = process.env.PATH ?? ""): string | null {
  for (const dir of path.split(delimiter)) {
    if (!dir) continue;
    const file = join(dir, "chromium");
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // Not in this folder: the next one may have it.
    }
  }
  return null;
}

/** Whoever cannot install a browser says so: BROWSER_SKIP_MISSING=1 npm run test:browser. */
export const mayBeMissing = process.env.BROWSER_SKIP_MISSING === "1";

/** Longest wait of a page for anything, ms: it ends what hangs, and nothing else. */
const PATIENCE_MS = 300_000;

/** @throws Error that says what to install */
export async function launchChromium(): Promise<Browser> {
  const executablePath = chromiumPath();
  if (executablePath === null) {
    throw new Error(
      "there is no `chromium` in PATH: install Debian's package (apt-get install chromium), or set BROWSER_SKIP_MISSING=1",
    );
  }
  // Its own sandbox wants user namespaces, which a container seldom has; it opens nothing but our own pages.
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"], timeout: PATIENCE_MS });
  const newContext = browser.newContext.bind(browser);
  browser.newContext = async (options) => {
    const context = await newContext(options);
    context.setDefaultTimeout(PATIENCE_MS);
    return context;
  };
  return browser;
}
