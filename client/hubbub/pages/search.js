// Show the rows of a table whose data-words have every word that is typed. Without scripts the form is hidden and all rows are shown.
"use strict";
(() => {
  const form = document.querySelector("form.search");
  const rows = [...document.querySelectorAll("tr[data-words]")];
  const [find, count] = [form.querySelector("input"), form.querySelector("output")];
  const apply = () => {
    const words = find.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every((word) => row.dataset.words.includes(word));
    count.value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} metrics`;
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  find.addEventListener("input", apply);
  form.hidden = false;
  apply();
})();
