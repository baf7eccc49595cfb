/** Remainder by 97 of a text of 0-9 and A-Z, where letters stand for 10 to 35 (ISO 7064, mod 97-10). */
function remainder(text: string): number {
  let rest = 0;
  for (const character of text) {
    const value = Number.parseInt(character, 36);
    rest = (rest * (value < 10 ? 10 : 100) + value) % 97;
  }
  return rest;
}

/** The two check digits of the first 18 characters of a LEI (ISO 17442). */
export const checkDigitsOf = (base: string): string => String(98 - remainder(`${base}00`)).padStart(2, "0");

/** What is wrong with a text as a LEI (ISO 17442: 18 characters, two check digits), in words; null where nothing is. */
export function faultOfLei(lei: string): string | null {
  if (!/^[0-9A-Z]{18}[0-9]{2}$/.test(lei)) return "must be 18 letters and digits and two check digits (ISO 17442)";
  return remainder(lei) === 1 ? null : `has wrong check digits (ISO 17442): ${lei.slice(18)}`;
}
