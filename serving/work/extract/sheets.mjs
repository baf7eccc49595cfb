/** Extracts CSV and XLSX: rows of cells as text with tabs, and as tables. Empty rows and columns are left out. */
import {
  Bounded,
  brief,
  clean,
  cutTo,
  flat,
  linkOf,
  NO_METADATA,
  PastBound,
  Unreadable,
  withinLimits,
} from "./bounds.mjs";

/** Separators of a CSV, in order of preference, and the lines that are examined for them. */
const SEPARATORS = [",", ";", "\t", "|"];
const EXAMINED_LINES = 20;

/** Leaves out empty columns and rows, and fills short rows. */
function trimmed(rows) {
  const used = new Set();
  for (const row of rows) for (const [i, cell] of row.entries()) if (cell !== "") used.add(i);
  const columns = [...used].sort((a, b) => a - b);
  return rows.filter((row) => row.some((cell) => cell !== "")).map((row) => columns.map((i) => row[i] ?? ""));
}

/** Builds the answer of named sheets of rows. @throws Unreadable */
function answerOf(sheets, links, limits) {
  const headings = new Bounded(limits.headings);
  const tables = [];
  const parts = [];
  let length = 0;
  const put = (text) => {
    const gap = parts.length > 0 ? "\n\n" : "";
    parts.push(gap, text);
    length += gap.length + text.length;
  };
  for (const { name, rows, isHeaded } of sheets) {
    if (rows.length === 0) continue;
    if (name !== null) {
      headings.push({ level: 1, text: cutTo(name, 300), offset: length + (parts.length > 0 ? 2 : 0), page: null });
      put(name);
    }
    put(rows.map((row) => row.join("\t")).join("\n"));
    tables.push({ page: null, found: "markup", caption: name, header: isHeaded, rows });
  }
  if (tables.length === 0) throw new Unreadable("there is no text in it");
  return { part: "whole", ...withinLimits({ whole: parts.join(""), headings, tables, links }, limits) };
}

/** Returns the separator that splits the first lines into most columns, the same number of them in each line. */
function separatorOf(text, type) {
  if (/^text\/tab-separated-values/i.test(type)) return "\t";
  const head = text.slice(0, 20_000).replace(/"[^"]*"/g, "");
  const lines = head.split(/\r?\n|\r/, EXAMINED_LINES).filter((line) => line.trim() !== "");
  const score = (separator) => {
    const counts = lines.map((line) => line.split(separator).length - 1);
    const most = Math.max(0, ...counts);
    return most === 0 ? 0 : counts.filter((count) => count === most).length / lines.length + most / 1_000;
  };
  return SEPARATORS.reduce((best, one) => (score(one) > score(best) ? one : best));
}

/**
 * Extracts CSV (RFC 4180), with other separators too.
 * @param {string} text
 * @throws Unreadable
 */
export async function readCsv(text, { type = "", limits }) {
  const { parse } = await import("csv-parse/sync");
  let records;
  try {
    records = parse(text, {
      bom: true,
      delimiter: separatorOf(text, type),
      record_delimiter: ["\r\n", "\n", "\r"],
      relax_column_count: true,
      relax_quotes: true,
      skip_empty_lines: true,
    });
  } catch (error) {
    throw new Unreadable(`it is no CSV that can be read: ${flat(String(error?.message)).slice(0, 120)}`);
  }
  const rows = trimmed(records.map((record) => record.map((cell) => flat(clean(cell)))));
  const isHeaded = /;\s*header\s*=\s*"?present/i.test(type);
  const answer = answerOf([{ name: null, rows, isHeaded }], new Bounded(limits.links), limits);
  return { ...answer, metadata: NO_METADATA };
}

/**
 * Returns the rows of a sheet: the cells that exist, as they are displayed, with merged ones filled.
 * @throws PastBound
 */
function rowsOf(sheet, utils, counted, limits) {
  const hidden = (list) => new Set((list ?? []).flatMap((one, i) => (one?.hidden ? [i] : [])));
  const [noRows, noColumns] = [hidden(sheet["!rows"]), hidden(sheet["!cols"])];
  const grid = new Map();
  const put = (r, c, text) => {
    if (noRows.has(r) || noColumns.has(c)) return;
    counted.cells += 1;
    if (counted.cells > limits.sheetCells) {
      throw new PastBound("cells", `more than ${limits.sheetCells} cells in it`);
    }
    if (!grid.has(r)) grid.set(r, []);
    grid.get(r)[c] = text;
  };
  for (const address of Object.keys(sheet)) {
    if (address.startsWith("!")) continue;
    const { v, w } = sheet[address];
    const text = flat(clean(String(w ?? v ?? "")));
    const { r, c } = utils.decode_cell(address);
    if (text !== "") put(r, c, text);
  }
  fillMerged(sheet["!merges"] ?? [], grid, put);
  const inOrder = [...grid.keys()].sort((a, b) => a - b);
  return trimmed(inOrder.map((r) => Array.from(grid.get(r), (cell) => cell ?? "")));
}

/** Fills the cells that merged ones cover, in rows and columns that hold something. */
function fillMerged(merges, grid, put) {
  const rows = [...grid.keys()].sort((a, b) => a - b);
  const width = rows.reduce((most, r) => Math.max(most, grid.get(r).length), 0);
  for (const { s, e } of merges) {
    const text = grid.get(s.r)?.[s.c];
    if (text === undefined) continue;
    for (const r of rows) {
      if (r < s.r || r > e.r) continue;
      for (let c = s.c; c <= Math.min(e.c, width - 1); c++) if (r !== s.r || c !== s.c) put(r, c, text);
    }
  }
}

/** Reports whether the first row of a sheet has a filter, which marks it as a header. */
const isFiltered = (sheet, utils) => {
  const filter = sheet["!autofilter"]?.ref;
  const range = sheet["!ref"];
  if (!filter || !range) return false;
  return utils.decode_range(filter).s.r === utils.decode_range(range).s.r;
};

/**
 * Extracts an XLSX: each visible sheet under its name. Formulas are not computed; their last value is read.
 * @param {Buffer} bytes
 * @throws PastBound, Unreadable
 */
export async function readWorkbook(bytes, { url, limits }) {
  const { openPackage } = await import("./package.mjs");
  const pack = await openPackage(bytes, limits);
  for (const name of pack.names()) if (/^xl\/.*\.xml$/.test(name)) await pack.checkHead(name);
  const { read, utils } = await import("@e965/xlsx");
  const book = read(bytes, {
    type: "buffer",
    cellFormula: false,
    cellHTML: false,
    cellStyles: true,
    sheetStubs: false,
    dateNF: "yyyy-mm-dd",
    sheetRows: limits.sheetRows,
  });
  const links = new Bounded(limits.links);
  const counted = { cells: 0 };
  const isShown = (i) => !book.Workbook?.Sheets?.[i]?.Hidden;
  const sheets = book.SheetNames.filter((_, i) => isShown(i)).map((name) => {
    const sheet = book.Sheets[name];
    for (const address of Object.keys(sheet)) {
      const { l, w, v } = address.startsWith("!") ? {} : sheet[address];
      const target = l?.Target ? linkOf(String(l.Target), url ?? undefined, limits.urlChars) : null;
      if (target) links.push({ text: cutTo(flat(clean(String(w ?? v ?? ""))), 200), url: target, page: null });
    }
    const isHeaded = isFiltered(sheet, utils);
    return { name: brief(name, 100) ?? "sheet", rows: rowsOf(sheet, utils, counted, limits), isHeaded };
  });
  const answer = answerOf(sheets, links, limits);
  const isCutRows = Object.values(book.Sheets).some(
    (sheet) => sheet["!fullref"] && sheet["!fullref"] !== sheet["!ref"],
  );
  const cut = isCutRows ? [...new Set([...answer.cut, "text", "tables"])] : answer.cut;
  return { ...answer, cut, metadata: { ...(await pack.metadata()), pages: null } };
}
