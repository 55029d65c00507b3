// Rows and thumbnails, from the page itself or from the server that serves it: one interface for both.
//
//   rows(query)      -> Promise of {total, rows}: what the query asks for of all rows, a page at a time
//   gallery(gallery) -> Promise of lists of Row, one a group
//   at(ids)          -> Promise of rows by id
//   thumb(row)       -> address of its thumbnail, or null
//   large(row)       -> address of its picture at a larger size; only where it is served

/** One row: column-wise arrays and a place in them. */
class Row {
  constructor(columns, at, id) {
    this.columns = columns;
    this.at = at;
    this.id = id;
  }

  get(name) {
    const column = Object.hasOwn(this.columns, name) ? this.columns[name] : null;
    return column ? (column[this.at] ?? null) : null;
  }

  get key() {
    return String(this.get("key") ?? "");
  }

  /** The row's number in the table: what ticks and thumbnails are known by. */
  get number() {
    return this.get("row") ?? this.id;
  }
}

/** Whether a row is one that the query asks for. */
function matches(row, query, classColumn) {
  if (query.decision && row.get("decision") !== query.decision) return false;
  if (query.klass && String(row.get(classColumn) ?? "") !== query.klass) return false;
  if (query.min !== null || query.max !== null) {
    const value = row.get(query.column);
    if (typeof value !== "number") return false;
    if (query.min !== null && value < query.min) return false;
    if (query.max !== null && value > query.max) return false;
  }
  if (!query.search) return true;
  const wanted = query.search.toLowerCase();
  return ["key", "reason"].some((name) => String(row.get(name) ?? "").toLowerCase().includes(wanted));
}

/** Return rows in the order asked for; those without a value come last, ties stay as they were. */
function sorted(rows, column, descending) {
  if (!column) return rows;
  const sign = descending ? -1 : 1;
  const keyed = rows.map((row) => [row.get(column), row]);
  keyed.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0);
  });
  return keyed.map(([, row]) => row);
}

/** Return the rows of an inlined document. */
function inlined(facts) {
  const columns = JSON.parse(byId("rows").textContent);
  const all = Array.from({ length: columns.n }, (_, at) => new Row(columns, at, at));
  const of = facts.thumbs ? facts.thumbs.of : [];
  let pieces = null; // of thumbnails, which stand at the end of the page
  const read = new Map(); // piece -> its thumbnails; parsed when first looked at
  const thumb = (row) => {
    const at = of[row.id] ?? -1;
    if (at < 0) return null;
    pieces ??= document.querySelectorAll("script.thumbs");
    const per = Number(pieces[0].dataset.per);
    const piece = Math.floor(at / per);
    if (!read.has(piece)) read.set(piece, pieces[piece].textContent.trim().split("\n"));
    const data = read.get(piece)[at % per];
    const type = data.startsWith("/9j/") ? "jpeg" : data.startsWith("UklG") ? "webp" : "png";
    return `data:image/${type};base64,${data}`;
  };
  return {
    n: columns.n,
    whole: all,
    thumb,
    at: async (ids) => ids.map((id) => all[id]),
    gallery: async (gallery) => groupsOf(gallery).map((group) => group.items.map((id) => all[id])),
    rows: async (query) => {
      const rows = sorted(all.filter((row) => matches(row, query, facts.class_column)), query.sort, query.descending);
      return { total: rows.length, rows: rows.slice(query.offset, query.offset + query.limit) };
    },
  };
}

/** Return the groups of a gallery; a flat one is a single group without words. */
function groupsOf(gallery) {
  return gallery.kind === "groups" ? gallery.groups : [{ words: "", items: gallery.items, kept: null }];
}
