export interface Place {
  kind?: unknown;
  index?: unknown;
}
export function placeOf(window: Buffer, start: number, end: number): Place;
export function quickPlaceOf(window: Buffer, start: number, end: number): { kind: string; index: number } | null;
export function parsedPlaceOf(entry: Buffer): Place;
