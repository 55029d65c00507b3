// Rows and thumbnails by question to the server that serves this page.

const PAGE = 100; // rows the server gives at most to one question

/** Return the rows of a table behind a server. */
function served(facts, base) {
  const known = new Map(); // row number -> Row, for what is asked for again and again

  const ask = async (params) => {
    const answer = await fetch(`${base}rows?${new URLSearchParams(params)}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(`${answer.status}: ${(await answer.text()).slice(0, 300)}`);
    const { total, rows } = await answer.json();
    const found = Array.from({ length: rows.n }, (_, at) => new Row(rows, at, rows.row[at]));
    return { total, rows: found };
  };

  const at = async (ids) => {
    const missing = ids.filter((id) => !known.has(id));
    for (let start = 0; start < missing.length; start += PAGE) {
      const part = missing.slice(start, start + PAGE);
      for (const row of (await ask({ row: part.join(","), limit: PAGE })).rows) known.set(row.id, row);
    }
    return ids.filter((id) => known.has(id)).map((id) => known.get(id));
  };

  return {
    n: facts.n_rows,
    whole: null,
    thumb: (row) => `${base}thumb/${row.number}.jpg`,
    at,
    gallery: async (gallery) => {
      const groups = groupsOf(gallery);
      await at([...new Set(groups.flatMap((group) => group.items))]);
      return groups.map((group) => group.items.filter((id) => known.has(id)).map((id) => known.get(id)));
    },
    rows: (query) => {
      const params = { offset: query.offset, limit: Math.min(query.limit, PAGE) };
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
