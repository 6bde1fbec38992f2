"use strict";
// Exports and the public link of a presentation.

// --- export -----------------------------------------------------------------------------------------------

$("export-open").addEventListener("click", () => {
  $("export-state").textContent = "";
  $("download").hidden = true;
  $("export-dialog").showModal();
});

$("export-dialog").addEventListener("click", (event) => {
  const button = event.target.closest("[data-format]");
  if (button) guarded(() => startExport(button.dataset.format), $("export-state"))();
});

async function startExport(format) {
  if (!await keepDraft()) return;
  const id = deck.id;
  const name = format.toUpperCase();
  $("download").hidden = true;
  $("export-state").textContent = `The ${name} is being made…`;
  const accepted = await ask("POST", `presentations/${id}/exports`, { format });
  follow(accepted.job_id, () => {}, guarded(async () => {
    const made = await ask("GET", `exports/${accepted.export_id}`);
    if (deck.id !== id) return;
    if (made.state !== "done") { $("export-state").textContent = made.error ?? "The export was interrupted."; return; }
    $("export-state").textContent = `The ${name} is ready.`;
    Object.assign($("download"), { href: made.url, textContent: `Download the ${name}`, hidden: false });
    $("download").focus();
  }, $("export-state")));
}

// --- the public link --------------------------------------------------------------------------------------

const sharesPath = () => `presentations/${deck.id}/shares`;

$("share-open").addEventListener("click", guarded(async () => {
  $("share-state").textContent = "";
  drawShare(await ask("GET", sharesPath()).catch((problem) => {
    if (problem.status === 404) return null; // it is not shared
    throw problem;
  }));
  $("share-dialog").showModal();
}));

function drawShare(share) {
  $("share-link").hidden = !share;
  $("withdraw").hidden = !share;
  $("share-save").textContent = share ? "Change the expiry" : "Create the link";
  if (!share) return;
  $("share-url").value = new URL(share.url, location.href).href;
  const views = `${share.view_count} ${share.view_count === 1 ? "view" : "views"}`;
  const open = el("a", { href: share.url, target: "_blank", rel: "noopener" }, "Open it");
  $("share-about").replaceChildren(share.expires_at ? `Open until ${day(share.expires_at)}` : "Open until you withdraw it", ` · ${views} · `, open);
}

$("share-form").addEventListener("submit", guarded(async (event) => {
  const days = event.target.elements.days.value;
  drawShare(await ask("POST", sharesPath(), { days: days ? Number(days) : null }));
  $("share-state").textContent = "The link is open.";
}, $("share-state")));

$("copy").addEventListener("click", guarded(async () => {
  $("share-url").select();
  try {
    await navigator.clipboard.writeText($("share-url").value);
    $("share-state").textContent = "Copied.";
  } catch { // without HTTPS or permission
    $("share-state").textContent = "The link is selected; copy it with your keyboard.";
  }
}));

$("withdraw").addEventListener("click", guarded(async () => {
  await ask("DELETE", sharesPath());
  drawShare(null);
  $("share-state").textContent = "The link is withdrawn: it opens nothing now, and another one will have another address.";
}, $("share-state")));
