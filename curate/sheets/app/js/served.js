// Rows and thumbnails by question to the server that serves this page.

const NUMBERS = 500; // rows asked for by number at a time: an address has room for as many

/** Return the rows of a table behind a server. */
function served(facts, base) {
  const known = new Map(); // row number -> Row, for what is asked for again and again

  const ask = async (params) => {
    const answer = await fetch(`${base}rows?${new URLSearchParams(params)}`, { cache: "no-store" });
    const { total, rows, error } = await answer.json();
    if (!answer.ok) throw new Error(error ?? answer.statusText);
    const found = Array.from({ length: rows.n }, (_, at) => new Row(rows, at, rows.row[at]));
    return { total, rows: found };
  };

  const at = async (ids) => {
    const missing = ids.filter((id) => !known.has(id));
    for (let start = 0; start < missing.length; start += NUMBERS) {
      const part = missing.slice(start, start + NUMBERS);
      for (const row of (await ask({ row: part.join(","), limit: NUMBERS })).rows) known.set(row.id, row);
    }
    return ids.filter((id) => known.has(id)).map((id) => known.get(id));
  };

  return {
    n: facts.n_rows,
    whole: null,
    thumb: (row) => `${base}thumb/${row.number}.jpg`,
    large: (row) => `${base}image/${row.number}.jpg`,
    at,
    gallery: async (gallery) => {
      const groups = groupsOf(gallery);
      await at([...new Set(groups.flatMap((group) => group.items))]);
      return groups.map((group) => group.items.filter((id) => known.has(id)).map((id) => known.get(id)));
    },
    rows: (query) => {
      const params = { offset: query.offset, limit: query.limit };
      if (query.sort) params.sort = query.sort;
      if (query.sort && query.descending) params.descending = 1;
      if (query.klass) params.class = query.klass;
      if (query.search) params.search = query.search;
      if (query.decision) params.decision = query.decision;
      if (query.min !== null) params[`min.${query.column}`] = query.min;
      if (query.max !== null) params[`max.${query.column}`] = query.max;
      return ask(params);
    },
  };
}
