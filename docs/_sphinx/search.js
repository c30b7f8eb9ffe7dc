/* Order of the search results: what the query names exactly comes first, and other members of the Python API come last. */
var Scorer = {
  score: ([page, title, , , score]) => {
    const query = (new URLSearchParams(location.search).get("q") || "").trim().toLowerCase();
    const named = title.toLowerCase().replaceAll(".--", " --");
    const isNamed = named === query || [" ", ".", " --"].some((before) => named.endsWith(before + query));
    const isGroup = named.startsWith("hubbub ") && `hubbub ${query}`.startsWith(`${named} `); // of a subcommand
    if (!page.startsWith("reference/")) return score;
    return isNamed || isGroup ? score + 100 : page.startsWith("reference/python/") ? score - 30 : score;
  },
  // the weights of Sphinx
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
