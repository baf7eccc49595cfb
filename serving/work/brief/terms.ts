/**
 * Terms by which a question and a sentence are compared: words without stop words, stemmed. Words of a German question
 * are also searched for in English: by a small table, by the parts of compounds, and by spelling. Any other German word
 * finds only German text, names and numbers, since nothing is translated.
 */

/** Stop words of English. */
const STOPWORDS = new Set(
  "a about all also am an and any are as at be been being but by can could did do does for from get had has have he her his how i if in into is it its may me might more most my need no not of on one or our shall she should so some such than that the their them then there these they this those to want was way we were what when where which who whom whose why will with would you your".split(
    " ",
  ),
);

/** Stop words of German, which count only in a German question. */
const GERMAN_STOPWORDS = new Set(
  "aber alle als am auch auf aus bei beim bin bis da damit das dass dem den denn der des dessen dich dir doch du durch ein eine einem einen einer eines er es etwas für gibt haben habe hier ich ihm ihn ihr ihre im ist ja jede jeder kann kein keine können lange man mein mich mir mit muss nach nicht noch nur ob oder ohne sein seine sich sie sind sollen soll über um und uns unser unter viel viele vom von vor wann warum was weil welche welchem welchen welcher welches wem wen wenn wer werden wie wieviel wieso wird wo wofür woher wohin worden wurde wurden zu zum zur darf dürfen".split(
    " ",
  ),
);
/** Words that show that a question is German, since English texts hardly contain them. */
const GERMAN_MARKERS = new Set(
  "das dem den der des ein eine einem einen einer für ich ist kann muss nicht oder sind und von wann warum welche welchem welchen welcher welches wer wie wieviel wird wo zum zur darf dürfen über".split(
    " ",
  ),
);

/** English words for German words of trade, web pages and this market. The German words are without their endings. */
const GERMAN_TO_ENGLISH: Readonly<Record<string, string>> = Object.fromEntries(
  `abo subscription|abonnement subscription|adresse address|angebot offer|anbieter seller provider|anfrage request|angeben state|anspruch claim
  antwort answer response|anwalt lawyer|anzahl number|arbeit work|artikel article item|aufbewahr keep retain store|aufbewahrung retention|auftrag order
  ausnahme exception|bank bank|bedingung condition term|beginn begin start|beschädigt damaged|beschwerde complaint|bestellung order|bestell order|besuch visit
  betrag amount|betrug fraud|bezahl pay|brief letter|buch book|computer computer|daten data|datum date|dauer duration take last|defekt defective|dieb thief
  dienst service|ende end|endet end|entfernung distance|erfind invent|erfunden invented|erhalt receive|erlaubt allow permit|ersatz replacement|erstatt refund reimburse
  erstattung refund|europa europe|fahr drive|farbe colour color|fehler error|feiertag holiday|firma company|fluss river|frist period deadline|garantie guarantee warranty
  gebühr fee charge|geld money|geliefert delivered|gericht court|geboren born|gesamt total|geschäft business shop|geschlossen closed|gesetz law|gewicht weight|gewährleistung warranty
  gründ found|gründung founding|gegründet founded|gültig valid|haftung liability|haft liable|hauptstadt capital|haus house|herstell manufacture|hersteller manufacturer|höhe height amount
  inhalt content|insel island|jahr year|kauf buy purchase|käufer buyer|kind child|konto account|kosten cost|kostet cost|kostenlos free|kündig cancel terminate|kündigung cancellation termination|kunde customer
  laden shop|land country|laufzeit term|leistung service performance|liefer deliver|lieferung delivery shipping|lizenz licence license|lösch delete erase|löschung deletion|mangel defect
  meldung report|menge quantity|mensch people human|miete rent|minute minute|mindest minimum|monat month|nachricht message|name name|nutzer user|nutzung use|offen open|öffnung opening|öffnet open
  ort place|person person|pflicht duty obligation|preis price|probe trial sample|protokoll log protocol|qualität quality|quelle source|rabatt discount|recht right law|rechnung invoice bill|regel rule
  reise travel|rück back return|rückgabe return|rückerstattung refund|rücktritt withdrawal|schaden damage|schließ close|schlüssel key|schnell fast|schutz protection|seite page|sekunde second|sicherheit security
  sonntag sunday|samstag saturday|montag monday|dienstag tuesday|mittwoch wednesday|donnerstag thursday|freitag friday|speicher store keep|sprache language|stadt city town|steuer tax|stichprobe sample|stunde hour
  tag day|teil part|telefon phone telephone|tier animal|tiere animals|unternehmen company business|urteil judgment|vertrag contract|verbot ban prohibit|verkauf sale sell|verkäufer seller|verlust loss|versand shipping|verschlüssel encrypt
  versicherung insurance|verspätung delay|verzug delay|volljährig adult|voraussetzung requirement|vorbei over|ware goods|wasser water|website website site|weg way|weiter further|werk work
  wert value|widerruf withdrawal revoke|widerspruch objection|wiederholung repetition|woche week|wohn live|zahl pay number|zahlung payment|zeit time|zeitraum period|zerstör destroy|ziel goal|zins interest|zoll customs|zugang access|zurück back return|zustimmung consent`
    .split(/[|\n]/)
    .map((line) => line.trim().split(" "))
    .map(([word, ...english]) => [word!, english.join(" ")]),
);

/** Replacements that turn a German word into the spelling of its English cognate. */
const COGNATE_SPELLINGS: readonly (readonly [RegExp, string])[] = [
  [/ität$/, "ity"],
  [/isch(?:e[mnrs]?)?$/, "ic"],
  [/ieren$/, "e"],
  [/ion(?:en)?$/, "ion"],
  [/k/g, "c"],
  [/z/g, "c"],
  [/ä/g, "a"],
  [/ö/g, "o"],
  [/ü/g, "u"],
];
const ENDINGS = ["innen", "ungen", "ern", "en", "em", "er", "es", "st", "e", "n", "s", "t"];
/** Letters that may join the parts of a German compound. */
const COMPOUND_JOINTS = ["", "s", "n", "en", "es", "e"];
const MIN_PART_LENGTH = 3;

/** Matches words; in scripts that are written without spaces, single characters. */
const WORD = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]|[\p{L}\p{M}\p{N}]+/gu;

/** Returns the words of a text in lower case, in their order. */
export const wordsOf = (text: string): string[] => text.normalize("NFKC").toLowerCase().match(WORD) ?? [];

/** Returns the singular of an English word, by the S-stemmer (Harman, 1991). */
function stem(word: string): string {
  if (word.length < 4) return word;
  if (/[^ea]ies$/.test(word)) return `${word.slice(0, -3)}y`;
  if (/[^aeo]es$/.test(word)) return word.slice(0, -1);
  return /[^us]s$/.test(word) ? word.slice(0, -1) : word;
}

/** Returns the search terms of a text: its words without stop words, stemmed. */
export const termsOf = (text: string): string[] =>
  wordsOf(text)
    .filter((word) => !STOPWORDS.has(word))
    .map(stem);

/** A word of a question, with all terms that stand for it. */
export interface SoughtWord {
  /** The word of the question, in lower case. */
  word: string;
  terms: readonly string[];
}

/** Phrases that ask for a figure. Their adjective is not searched for: a sentence with the figure may lack it. */
const FIGURE_PHRASE = /\bhow (?:big|far|fast|high|large|late|long|many|much|often|old|soon)\b/giu;

/** Returns the words that a question looks for, each once. Words of a German question also get English terms. */
export function soughtWordsOf(question: string): SoughtWord[] {
  const words = wordsOf(question.replaceAll(FIGURE_PHRASE, "how"));
  const isGerman = words.some((word) => GERMAN_MARKERS.has(word));
  const sought = new Map<string, SoughtWord>();
  for (const word of words) {
    if (/^\p{Script=Latin}$/u.test(word) || STOPWORDS.has(word) || (isGerman && GERMAN_STOPWORDS.has(word))) continue;
    const terms = new Set([stem(word), ...(isGerman ? englishFor(word) : [])]);
    if (!sought.has(stem(word))) sought.set(stem(word), { word, terms: [...terms] });
  }
  return [...sought.values()];
}

/** Returns the table's English words for a German word, also without its ending; undefined when the table has none. */
function lookUpGerman(word: string): string | undefined {
  const stems = ENDINGS.filter((ending) => word.endsWith(ending)).map((ending) => word.slice(0, -ending.length));
  const tableWord = [word, ...stems].find(
    (one) => one.length >= MIN_PART_LENGTH && Object.hasOwn(GERMAN_TO_ENGLISH, one),
  );
  return tableWord === undefined ? undefined : GERMAN_TO_ENGLISH[tableWord];
}

/** Returns English terms for a German word: by the table, else by the table for its parts, else by spelling. */
function englishFor(word: string): string[] {
  const english = lookUpGerman(word) ?? lookUpCompound(word);
  if (english !== undefined) return english.split(" ").map(stem);
  return [stem(COGNATE_SPELLINGS.reduce((text, [from, to]) => text.replace(from, to), word))];
}

/**
 * Returns the table's words for both parts of a compound, such as `Rückgabefrist`; undefined if it has no such parts.
 */
function lookUpCompound(word: string): string | undefined {
  for (let at = word.length - MIN_PART_LENGTH; at >= MIN_PART_LENGTH; at--) {
    const lastEnglish = lookUpGerman(word.slice(at));
    if (lastEnglish === undefined) continue;
    for (const joint of COMPOUND_JOINTS) {
      const firstEnglish = word.slice(0, at).endsWith(joint)
        ? lookUpGerman(word.slice(0, at - joint.length))
        : undefined;
      if (firstEnglish !== undefined) return `${firstEnglish} ${lastEnglish}`;
    }
  }
  return undefined;
}
