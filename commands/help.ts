import { type Command, Help, type Option } from "commander";

/** Examples for each command, as they run. A test checks that every command has one. */
export const EXAMPLES: Record<string, readonly string[]> = {
  start: ["touchstone start --market", "touchstone start"],
  init: [
    "touchstone init",
    "touchstone init --name record.example --network eip155:8453 --rpc https://node-a.example --rpc https://node-b.example --control https://one.example/ --control https://two.example/ --catalogue cdp-bazaar --no-sell",
  ],
  keygen: ["touchstone keygen"],
  "keys list": ["touchstone keys list --json"],
  "keys rotate": ["touchstone keys rotate cards"],
  observe: ["touchstone observe --once", "touchstone observe --once --listings listings.csv"],
  listing: [
    "touchstone listing https://seller.example/weather",
    "touchstone listing http://localhost:3000/weather --method POST --annotations github",
  ],
  "listings add": ["touchstone listings add https://seller.example/.well-known/x402"],
  "listings list": ["touchstone listings list", "touchstone listings list --host seller.example --json"],
  "listings show": ["touchstone listings show https://seller.example/weather"],
  "listings remove": ["touchstone listings remove https://seller.example/weather --says 'the seller asked for it'"],
  "register import": ["touchstone register import golden-copy.csv.zip"],
  ingest: ["touchstone ingest --once"],
  grade: ["touchstone grade --once"],
  own: ["touchstone own --once"],
  publish: ["touchstone publish --once"],
  archive: ["touchstone archive --once"],
  "archive supersede": [
    "touchstone archive supersede arc_00000000000000000000000000 --reason 'a row was read with the wrong price'",
  ],
  budget: ["touchstone budget", "touchstone budget --day 2026-11-21 --all"],
  ledger: ["touchstone ledger --json"],
  "plan show": ["touchstone plan show 2026-11-21"],
  serve: ["touchstone serve", "touchstone serve --from https://record.example --processes 2"],
  buckets: ["touchstone buckets --publisher PUBLISHER_KEY --owner OWNER_KEY --pipeline PIPELINE_KEY"],
  redrive: ["touchstone redrive"],
  rebuild: ["touchstone rebuild"],
  migrate: ["touchstone migrate", "touchstone migrate --table"],
  mirror: [
    "touchstone mirror https://record.example copy",
    "touchstone mirror https://record.example copy --follow 60",
    "touchstone mirror https://record.example copy --verify",
  ],
  "mirror serve": ["touchstone mirror serve copy --port 8403"],
  audit: ["touchstone audit copy", "touchstone audit https://record.example --also copy"],
  export: ["touchstone export copy index.parquet", "touchstone export copy grades.parquet --what grades"],
  correct: [
    "touchstone correct https://seller.example/weather --all-before-now --fault misread_terms --says 'we read the price wrongly'",
  ],
  reinstate: ["touchstone reinstate cor_00000000000000000000000000 --says 'the price was right after all'"],
  dispute: ["touchstone dispute dispute.json"],
  recompute: ["touchstone recompute all --from copy"],
  exposure: ["touchstone exposure dependencies.txt --base https://record.example"],
  doctor: ["touchstone doctor", "touchstone doctor --role publish --json"],
  "wallets new": ["touchstone wallets new --blind 20"],
  "wallets list": ["touchstone wallets list --json"],
  "wallets sweep": ["touchstone wallets sweep --to 0x0000000000000000000000000000000000000001 --dry-run"],
  "gap accept": ["touchstone gap accept"],
};

/** The words of a command below the program. */
function wordsOf(command: Command): string {
  const above = command.parent;
  return above?.parent ? `${wordsOf(above)} ${command.name()}` : command.name();
}

/** Every command below, itself included. */
export const commandsOf = (command: Command): Command[] => [command, ...command.commands.flatMap(commandsOf)];

/** Examples below every help, and required options marked as such. */
export function explain(program: Command): void {
  const plain = new Help();
  for (const command of commandsOf(program)) {
    command.configureHelp({
      optionDescription: (option: Option) =>
        `${plain.optionDescription(option)}${option.mandatory ? " (required)" : ""}`,
    });
    const examples = EXAMPLES[wordsOf(command)];
    if (examples) command.addHelpText("after", `\nExamples:\n${examples.map((one) => `  ${one}`).join("\n")}`);
  }
}
