/* What a screen reader and a keyboard need beyond the theme: names of the two side columns, and focus for what scrolls. */
"use strict";

function nameSideColumns() {
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages of this site");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "Contents of this page");
}

function focusWhatScrolls() {
  for (const element of document.querySelectorAll("article pre, article .table-wrapper, article div.math")) {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
    else element.removeAttribute("tabindex");
  }
}

document.addEventListener("DOMContentLoaded", nameSideColumns);
window.addEventListener("load", focusWhatScrolls);
window.addEventListener("resize", focusWhatScrolls);
