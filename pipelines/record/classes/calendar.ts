import { booleanScore, boundedText, type Checker, RandomDraws, toNumber } from "./checker.ts";

const DAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
const DAY_S = 86_400;
/**
 * First date of questions, unix seconds. All dates are in the {@link DATE_RANGE_DAYS} days after it. Those days are
 * past, so no later law can change the offsets from UTC that zones had on them.
 */
const FIRST_DATE_S = Date.UTC(2012, 0, 1) / 1000;
const DATE_RANGE_DAYS = 4_000;

/**
 * Time zones of many kinds: east and west, north and south, with half and quarter hours, with and without summer time.
 */
const ZONES = [
  "Asia/Tokyo",
  "Asia/Kolkata",
  "Asia/Kathmandu",
  "Asia/Dubai",
  "Asia/Singapore",
  "Australia/Sydney",
  "Australia/Adelaide",
  "Africa/Nairobi",
  "Africa/Johannesburg",
  "Europe/Berlin",
  "Europe/London",
  "Europe/Helsinki",
  "America/New_York",
  "America/Los_Angeles",
  "America/Phoenix",
  "America/St_Johns",
  "Pacific/Auckland",
  "Pacific/Honolulu",
] as const;

/** Returns the minutes by which a zone's clocks are ahead of UTC at a moment, from Node's copy of the tz database. */
export function offsetMinutes(zone: string, at: Date): number {
  const offsetName = new Intl.DateTimeFormat("en-US", { timeZone: zone, timeZoneName: "longOffset" })
    .formatToParts(at)
    .find(({ type }) => type === "timeZoneName")?.value;
  const [, sign, hours, minutes] = /^GMT(?:([+-])(\d{2}):(\d{2}))?$/.exec(offsetName ?? "") ?? [];
  return sign === undefined ? 0 : (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes));
}

/**
 * Parses an offset from UTC to minutes: `+05:30`, `UTC-7`, `Z`, or a number of minutes; undefined for any other
 * value.
 */
function parseOffsetMinutes(value: unknown): number | undefined {
  const text = boundedText(value, 20);
  const [, sign, hours, minutes] = /^(?:UTC|GMT)?\s?([+-])(\d{1,2}):?(\d{2})?$/i.exec(text ?? "") ?? [];
  if (sign && (/[a-z:]/i.test(text!) || /^[+-]\d{4}$/.test(text!)))
    return (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes ?? 0));
  return /^(?:Z|UTC|GMT)$/i.test(text ?? "") ? 0 : toNumber(value);
}

/**
 * Returns the number of a weekday (0 is Sunday) by its English name or the first three letters of the name; -1 for any
 * other value.
 */
const weekdayNumber = (value: unknown): number => {
  const text = boundedText(value, 20)?.toLowerCase() ?? "";
  return text.length < 3 ? -1 : DAYS.findIndex((day) => day === text || day.slice(0, 3) === text);
};

/**
 * The class of endpoints that return facts of the calendar that do not change: the weekday of a date, and a zone's
 * offset from UTC at a past moment.
 */
export const calendarFacts: Checker = {
  name: "calendar-facts",
  variants: {
    weekday: {
      asks: ["date"],
      answer: "/weekday",
      draw(seed) {
        const at = new Date((FIRST_DATE_S + new RandomDraws(seed).below(DATE_RANGE_DAYS) * DAY_S) * 1000);
        return { fields: { date: at.toISOString().slice(0, 10) }, truth: DAYS[at.getUTCDay()] };
      },
      solve({ date }) {
        const at = new Date(`${date}T00:00:00.000Z`);
        // Dates of other centuries get no answer, since not every source uses the Gregorian calendar for them.
        const isUsualDate = /^(?:19|20|21)\d\d-\d\d-\d\d$/.test(String(date)) && !Number.isNaN(at.getTime());
        return isUsualDate && at.toISOString().startsWith(String(date)) ? DAYS[at.getUTCDay()] : null;
      },
      delivery: (value) => booleanScore(Boolean(boundedText(value, 20))),
      score: (value, truth) => booleanScore(weekdayNumber(value) === DAYS.indexOf(String(truth))),
    },
    utc_offset: {
      asks: ["zone", "at"],
      answer: "/offset_minutes",
      draw(seed) {
        const draws = new RandomDraws(seed);
        const zone = draws.pick(ZONES);
        // At noon UTC no zone changes its clocks.
        const at = new Date((FIRST_DATE_S + draws.below(DATE_RANGE_DAYS) * DAY_S + DAY_S / 2) * 1000);
        const fields = { zone, at: `${at.toISOString().slice(0, 19)}Z` };
        return { fields, truth: offsetMinutes(zone, at) };
      },
      solve({ zone, at }) {
        const moment = new Date(String(at));
        const isMoment = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(String(at)) && !Number.isNaN(moment.getTime());
        const isAnswerable = (ZONES as readonly string[]).includes(String(zone)) && isMoment;
        const sinceFirstDate_s = moment.getTime() / 1000 - FIRST_DATE_S;
        return isAnswerable && sinceFirstDate_s >= 0 && sinceFirstDate_s <= DATE_RANGE_DAYS * DAY_S
          ? offsetMinutes(String(zone), moment)
          : null;
      },
      delivery: (value) => booleanScore(parseOffsetMinutes(value) !== undefined),
      score: (value, truth) => booleanScore(parseOffsetMinutes(value) === truth),
    },
  },
};
