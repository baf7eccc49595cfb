import { booleanScore, boundedText, type Checker, type Fields, RandomDraws, type Variant } from "./checker.ts";

/**
 * Countries with their ISO 3166-1 codes, capital, and currency code (ISO 4217). Only countries with one capital and
 * undisputed names are listed. A fact that is about to change, such as a currency, is "".
 */
const COUNTRIES: readonly (readonly [
  name: string,
  alpha2: string,
  alpha3: string,
  capital: string,
  currency: string,
])[] = [
  ["Argentina", "AR", "ARG", "Buenos Aires", "ARS"],
  ["Australia", "AU", "AUS", "Canberra", "AUD"],
  ["Austria", "AT", "AUT", "Vienna", "EUR"],
  ["Belgium", "BE", "BEL", "Brussels", "EUR"],
  ["Brazil", "BR", "BRA", "Brasilia", "BRL"],
  ["Bulgaria", "BG", "BGR", "Sofia", ""],
  ["Canada", "CA", "CAN", "Ottawa", "CAD"],
  ["Chile", "CL", "CHL", "Santiago", "CLP"],
  ["China", "CN", "CHN", "Beijing", "CNY"],
  ["Colombia", "CO", "COL", "Bogota", "COP"],
  ["Croatia", "HR", "HRV", "Zagreb", "EUR"],
  ["Cuba", "CU", "CUB", "Havana", "CUP"],
  ["Denmark", "DK", "DNK", "Copenhagen", "DKK"],
  ["Ecuador", "EC", "ECU", "Quito", "USD"],
  ["Egypt", "EG", "EGY", "Cairo", "EGP"],
  ["Estonia", "EE", "EST", "Tallinn", "EUR"],
  ["Ethiopia", "ET", "ETH", "Addis Ababa", "ETB"],
  ["Finland", "FI", "FIN", "Helsinki", "EUR"],
  ["France", "FR", "FRA", "Paris", "EUR"],
  ["Germany", "DE", "DEU", "Berlin", "EUR"],
  ["Ghana", "GH", "GHA", "Accra", "GHS"],
  ["Greece", "GR", "GRC", "Athens", "EUR"],
  ["Hungary", "HU", "HUN", "Budapest", "HUF"],
  ["Iceland", "IS", "ISL", "Reykjavik", "ISK"],
  ["India", "IN", "IND", "New Delhi", "INR"],
  ["Ireland", "IE", "IRL", "Dublin", "EUR"],
  ["Italy", "IT", "ITA", "Rome", "EUR"],
  ["Jamaica", "JM", "JAM", "Kingston", "JMD"],
  ["Japan", "JP", "JPN", "Tokyo", "JPY"],
  ["Jordan", "JO", "JOR", "Amman", "JOD"],
  ["Kenya", "KE", "KEN", "Nairobi", "KES"],
  ["Latvia", "LV", "LVA", "Riga", "EUR"],
  ["Lithuania", "LT", "LTU", "Vilnius", "EUR"],
  ["Mexico", "MX", "MEX", "Mexico City", "MXN"],
  ["Mongolia", "MN", "MNG", "Ulaanbaatar", "MNT"],
  ["Morocco", "MA", "MAR", "Rabat", "MAD"],
  ["Nepal", "NP", "NPL", "Kathmandu", "NPR"],
  ["New Zealand", "NZ", "NZL", "Wellington", "NZD"],
  ["Norway", "NO", "NOR", "Oslo", "NOK"],
  ["Pakistan", "PK", "PAK", "Islamabad", "PKR"],
  ["Peru", "PE", "PER", "Lima", "PEN"],
  ["Philippines", "PH", "PHL", "Manila", "PHP"],
  ["Poland", "PL", "POL", "Warsaw", "PLN"],
  ["Portugal", "PT", "PRT", "Lisbon", "EUR"],
  ["Romania", "RO", "ROU", "Bucharest", "RON"],
  ["Senegal", "SN", "SEN", "Dakar", "XOF"],
  ["Slovakia", "SK", "SVK", "Bratislava", "EUR"],
  ["Slovenia", "SI", "SVN", "Ljubljana", "EUR"],
  ["Spain", "ES", "ESP", "Madrid", "EUR"],
  ["Sweden", "SE", "SWE", "Stockholm", "SEK"],
  ["Thailand", "TH", "THA", "Bangkok", "THB"],
  ["Tunisia", "TN", "TUN", "Tunis", "TND"],
  ["Uganda", "UG", "UGA", "Kampala", "UGX"],
  ["Uruguay", "UY", "URY", "Montevideo", "UYU"],
  ["Zambia", "ZM", "ZMB", "Lusaka", "ZMW"],
];

type Country = (typeof COUNTRIES)[number];

/**
 * Keeps only the letters a to z of a name, in lower case and without accents, so that "São Paulo" equals "Sao Paulo".
 */
const toAsciiLetters = (text: string): string =>
  text
    .normalize("NFD")
    .toLowerCase()
    .replace(/[^a-z]/g, "");

interface Fact {
  /** Name of the field that holds the question. */
  askedField: string;
  /** Name of the field that holds the answer. */
  answerField: string;
  questionValue(country: Country): string;
  /** Returns the right answers for a country, as the table has them; an answer that equals any of them is right. */
  truths(country: Country): readonly string[];
}

const FACTS: Readonly<Record<string, Fact>> = {
  country_of_capital: {
    askedField: "capital",
    answerField: "country",
    questionValue: ([, , , capital]) => capital,
    truths: ([name, alpha2, alpha3]) => [name, alpha2, alpha3],
  },
  capital: {
    askedField: "country",
    answerField: "capital",
    questionValue: ([name]) => name,
    truths: ([, , , capital]) => [capital],
  },
  alpha2: {
    askedField: "country",
    answerField: "alpha2",
    questionValue: ([name]) => name,
    truths: ([, alpha2]) => [alpha2],
  },
  alpha3: {
    askedField: "country",
    answerField: "alpha3",
    questionValue: ([name]) => name,
    truths: ([, , alpha3]) => [alpha3],
  },
  currency: {
    askedField: "country",
    answerField: "currency",
    questionValue: ([name]) => name,
    truths: ([, , , , code]) => [code],
  },
};

const createFactVariant = ({ askedField, answerField, questionValue, truths }: Fact): Variant => ({
  asks: [askedField],
  answer: `/${answerField}`,
  draw(seed) {
    // A country whose answer is about to change ("") is not drawn.
    const country = new RandomDraws(seed).pick(COUNTRIES.filter((one) => truths(one).every((truth) => truth !== "")));
    const fields: Fields = { [askedField]: questionValue(country) };
    return { fields, truth: truths(country) };
  },
  solve(fields) {
    const askedValue = toAsciiLetters(String(fields[askedField]));
    const country = COUNTRIES.find((one) => toAsciiLetters(questionValue(one)) === askedValue);
    const knownTruths = country ? truths(country) : [];
    return knownTruths.length > 0 && knownTruths.every((truth) => truth !== "") ? knownTruths : null;
  },
  delivery: (value) => booleanScore(Boolean(boundedText(value, 200))),
  score(value, truth) {
    const answer = toAsciiLetters(boundedText(value, 200) ?? "");
    return booleanScore(
      answer !== "" && Array.isArray(truth) && truth.some((one) => toAsciiLetters(String(one)) === answer),
    );
  },
});

/**
 * The class of endpoints that return facts of countries that do not change: capitals, country codes and currency
 * codes.
 */
export const geoFacts: Checker = {
  name: "geo-facts",
  variants: Object.fromEntries(Object.entries(FACTS).map(([name, fact]) => [name, createFactVariant(fact)])),
};
