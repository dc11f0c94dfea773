// Blocks that scroll sideways can be reached and scrolled with the keyboard.
"use strict";
function reach() {
  for (const block of document.querySelectorAll("pre, .table-wrapper")) {
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
    else block.removeAttribute("tabindex");
  }
}
addEventListener("DOMContentLoaded", reach);
addEventListener("resize", reach);
