/* Order of the search results: what the query names exactly comes first. */
var Scorer = {
  score: ([page, title, , , score]) => {
    const query = (new URLSearchParams(location.search).get("q") || "").trim().toLowerCase();
    const named = title.toLowerCase().replaceAll(".--", " --");
    const isNamed = named === query || [" ", ".", " --"].some((before) => named.endsWith(before + query));
    const isGroup = named.startsWith("hubbub ") && `hubbub ${query}`.startsWith(`${named} `); // of a subcommand
    return (isNamed || isGroup) && page.startsWith("reference/") ? score + 100 : score;
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
