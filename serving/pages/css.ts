/**
 * The only style sheet. Its colours are those of a touchstone: slate, and the ochre streak that gold leaves on it.
 * Nothing depends on a colour alone, and contrast is at least 4.5 to 1 in both schemes (test/browser computes it from
 * the rendered page).
 */
const COLOURS = `
:root{color-scheme:light dark;--bg:#fafaf8;--fg:#1a2126;--soft:#55606a;--line:#d8dcdd;--panel:#f1f2f0;--field:#fff;
--slate:#25333d;--on-slate:#eef1f2;--streak:#c99a2e;--link:#1d5673;--mark:#2f5f7c;--band:#9fbaca;--grid:#dfe2e2;
--warn:#7a5200;--a:#1c6a3b;--b:#1f5f80;--c:#775600;--d:#94411a;--f:#9b1c1c;--u:#55606a;--on:#fff}
@media (prefers-color-scheme:dark){:root{--bg:#11161a;--fg:#e4e8ea;--soft:#9fabb4;--line:#2f3940;--panel:#192127;--field:#0d1215;
--slate:#1d2930;--on-slate:#eef1f2;--streak:#d9b357;--link:#9ccbe6;--mark:#8fc1de;--band:#456a80;--grid:#273138;
--warn:#e6bd63;--a:#80cf9c;--b:#88c0e0;--c:#e2b85c;--d:#ef9c72;--f:#f59e98;--u:#9fabb4;--on:#10151a}}
`;

const TEXT = `
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--fg);font:1rem/1.55 system-ui,-apple-system,"Segoe UI",sans-serif}
h1,h2,.brand{font-family:"Iowan Old Style","Palatino Linotype",Palatino,"Book Antiqua",Georgia,serif;font-weight:600}
h1{font-size:clamp(1.5rem,1.2rem + 1.4vw,2.1rem);line-height:1.2;margin:.2em 0 .35em;overflow-wrap:anywhere;letter-spacing:-.01em}
h2{font-size:1.22rem;line-height:1.3;margin:0 0 .6rem}
h3{font-size:.95rem;margin:0 0 .35rem}
p{margin:.5em 0}
a{color:var(--link);text-underline-offset:.15em}
a:hover{text-decoration-thickness:2px}
:focus-visible{outline:3px solid var(--streak);outline-offset:2px;border-radius:2px}
code,pre{font:.86em/1.5 ui-monospace,"SF Mono","Cascadia Mono",Menlo,Consolas,monospace;overflow-wrap:anywhere}
pre{background:var(--panel);border:1px solid var(--line);border-radius:4px;padding:.7rem .85rem;overflow-x:auto;white-space:pre-wrap;margin:.5rem 0}
.soft,caption,figcaption{color:var(--soft)}
.small{font-size:.86rem}
.lead{font-size:1.06rem;max-width:46rem}
.prose{max-width:46rem}
`;

const FRAME = `
.skip{position:absolute;left:-99rem;top:0;background:var(--slate);color:var(--on-slate);padding:.5rem .9rem}
.skip:focus{left:0;z-index:2}
.mast{background:var(--slate);color:var(--on-slate);border-bottom:3px solid var(--streak)}
.mast>div,main,footer>div{max-width:84rem;margin:0 auto;padding:0 1.25rem}
.mast>div{display:flex;gap:.3rem 1.75rem;align-items:baseline;flex-wrap:wrap;padding-top:.7rem;padding-bottom:.7rem}
.mast a{color:var(--on-slate);text-decoration:none}
.mast a:hover{text-decoration:underline}
.brand{font-size:1.3rem;letter-spacing:.01em}
.mast ul,.chips,.pager ul{display:flex;flex-wrap:wrap;gap:.25rem 1.1rem;list-style:none;margin:0;padding:0;font-size:.93rem}
main{padding-top:1.4rem;padding-bottom:2.5rem}
main.doc{max-width:52rem}
main.doc h2{margin-top:2rem}
main.doc{overflow-wrap:break-word}
main.doc li{margin:.3rem 0}
main.doc .scroll{margin:.8rem 0}
main.doc td,main.doc th{min-width:6.5rem}
main.doc td code,main.doc th code{overflow-wrap:break-word}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
footer{border-top:1px solid var(--line);color:var(--soft);font-size:.88rem}
footer>div{padding-top:1rem;padding-bottom:1.6rem}
footer nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.35rem 1.1rem;margin:.6rem 0 0;padding:0}
.note{background:var(--panel);border-left:4px solid var(--streak);padding:.55rem .9rem;margin:1rem 0;max-width:60rem}
.crumb{font-size:.9rem;margin:0 0 .3rem}
`;

const TABLES = `
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
caption{text-align:left;padding:.35rem 0}
th,td{text-align:left;vertical-align:top;padding:.5rem .6rem;border-bottom:1px solid var(--line)}
thead th{font-weight:600;color:var(--soft);font-size:.82rem;white-space:nowrap;border-bottom:2px solid var(--line);vertical-align:bottom}
tbody th{font-weight:600}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
thead th.n{text-align:right}
dl{display:grid;grid-template-columns:minmax(8rem,max-content) minmax(0,1fr);gap:.3rem 1.1rem;margin:0;font-size:.93rem}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
details{margin:.35rem 0 0}
summary{cursor:pointer;color:var(--link);font-size:.86rem}
`;

const MARKET = `
.chips{gap:.5rem;margin:.9rem 0;align-items:stretch}
.chips a{height:100%}
.chips a{display:flex;gap:.5rem;align-items:center;border:1px solid var(--line);border-radius:4px;padding:.2rem .6rem .2rem .3rem;text-decoration:none;color:var(--fg);background:var(--panel);font-variant-numeric:tabular-nums}
.chips a:hover{border-color:var(--soft)}
.chips [aria-current]{border-color:var(--fg);box-shadow:inset 0 0 0 1px var(--fg)}
form{display:flex;flex-wrap:wrap;gap:.6rem .8rem;align-items:end;margin:.4rem 0 1rem}
form label{display:grid;gap:.15rem;font-size:.83rem;color:var(--soft)}
form label.wide{flex:1 1 14rem;max-width:26rem}
form label.whole{flex:1 1 100%;max-width:52rem}
textarea{width:100%;resize:vertical}
input,select,textarea,button{font:inherit;font-size:.95rem;color:var(--fg);background:var(--field);border:1px solid var(--soft);border-radius:4px;padding:.35rem .55rem;min-height:2.4rem;max-width:100%}
button{background:var(--slate);color:var(--on-slate);border-color:var(--soft);padding:.35rem 1.1rem;cursor:pointer}
form.box{background:var(--panel);border:1px solid var(--line);border-left:5px solid var(--streak);border-radius:4px;padding:.8rem 1rem;max-width:52rem}
form.box label.wide{flex:1 1 18rem;max-width:none}
.proof{background:var(--panel);border:1px solid var(--line);border-left:5px solid var(--streak);border-radius:4px;padding:.4rem 1rem;margin:.5rem 0 1rem;overflow-wrap:anywhere}
.proof h3{margin-top:.8rem}
.proof label{display:grid;grid-template-columns:minmax(0,1fr);gap:.15rem;font-size:.83rem;color:var(--soft);margin:.4rem 0}
.steps{list-style:none;margin:.6rem 0;padding:0;font-size:.93rem}
.steps li{padding:.3rem 0 .3rem 1.6rem;border-bottom:1px solid var(--line);position:relative}
.steps .mark{position:absolute;left:.2rem;font-weight:700}
.steps [data-outcome=shown] strong,.steps [data-outcome=shown] .mark{color:var(--a)}
.steps [data-outcome=failed] strong,.steps [data-outcome=failed] .mark{color:var(--f)}
.steps .said{color:var(--soft)}
.market td.why{min-width:17rem;max-width:30rem;font-size:.9rem;line-height:1.45}
.market details{margin:0}
.market summary{color:var(--fg);font-size:inherit;line-height:1.5rem}
.market details[open]{font-size:.86rem}
.market th[scope=row]{min-width:13rem;max-width:24rem;overflow-wrap:anywhere;line-height:1.45}
th[scope=row]>a{display:block}
th[scope=row] .small{font-weight:400}
q{font-style:italic}
.market tbody tr:hover{background:var(--panel)}
.mini{width:120px;height:47px;display:block}
.pager ul{align-items:baseline;margin-top:1rem}
@media (max-width:76rem){.market th:nth-child(5),.market td:nth-child(5){display:none}.market td.why{min-width:12rem}.market th[scope=row]{min-width:11rem}}
@media (max-width:60rem){
.market,.market tbody,.market caption{display:block}
.market thead{position:absolute;left:-99rem}
.market tr{display:grid;grid-template-columns:3.9rem auto auto minmax(0,1fr);gap:0 .7rem;border-bottom:1px solid var(--line);padding:.4rem 0}
.market th,.market td{display:block;border:0;padding:0;min-width:0;max-width:none}
.market td:first-child{grid-row:1/4;padding-top:.15rem}
.market th[scope=row],.market td.why{grid-column:2/-1;min-width:0;max-width:none;line-height:1.5rem}
.market th[scope=row]>a,.market details:not([open])>summary{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.market th[scope=row] .small,.market td.pic,.market td.n:nth-child(5),.market td.n br{display:none}
.market summary{display:block}
.market td.n{text-align:left;font-size:.84rem;line-height:1.4rem;white-space:nowrap}
.market td[data-l]::before{content:attr(data-l) " ";color:var(--soft)}
}
`;

const GRADES = `
.grade{display:inline-block;min-width:2.1em;padding:.08em .45em;border:2px solid transparent;border-radius:.25em;font-weight:700;text-align:center;color:var(--on);line-height:1.35}
.A{background:var(--a)}.B{background:var(--b)}.C{background:var(--c)}.D{background:var(--d)}.F{background:var(--f)}
.UNRATED{background:transparent;color:var(--u);border-color:var(--u);font-size:.8em;font-weight:600}
.big{font:600 3.4rem/1.2 "Iowan Old Style","Palatino Linotype",Palatino,Georgia,serif;min-width:1.5em}
.big.UNRATED{font:600 1.35rem/1.6 system-ui,sans-serif;padding:.5em .7em}
`;

const ENDPOINT = `
.cols{display:grid;grid-template-columns:minmax(0,1fr);gap:1.6rem 2.2rem}
.cols>div{display:grid;gap:1.6rem;align-content:start;min-width:0}
.cols>div:empty{display:none}
section{min-width:0}
.cols+section{margin-top:1.6rem}
section.rule{border-top:1px solid var(--line);padding-top:1.1rem}
.verdict{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.4rem 1.3rem;align-items:start;background:var(--panel);border:1px solid var(--line);border-left:5px solid var(--slate);border-radius:4px;padding:1rem 1.2rem;margin:1rem 0 1.6rem}
.verdict.one{grid-template-columns:minmax(0,1fr)}
.verdict.one h2{font-size:1.22rem}
main>section.rule{margin-top:1.4rem}
main.doc>section.rule>h2{margin-top:0}
.line{font-size:1.15rem;font-weight:600;line-height:1.4}
.said{margin:.5rem 0 1rem;padding:.1rem 0 .1rem .9rem;border-left:3px solid var(--line);max-width:46rem;overflow-wrap:anywhere;font-style:italic}
.said .small{font-style:normal}
.says li{margin:.35rem 0}
.offers{min-width:56rem}
.leaders{min-width:44rem}
.leaders th[scope=row]{overflow-wrap:anywhere}
.pages{grid-template-columns:minmax(9rem,14rem) minmax(0,1fr);gap:.5rem 1.3rem}
.offers code{overflow-wrap:normal;white-space:nowrap}
.offers th[scope=row]{overflow-wrap:anywhere;min-width:9rem;max-width:20rem}
.offers td:nth-child(3){min-width:9rem}
.verdict p{margin:.1rem 0 .5rem;overflow-wrap:anywhere}
.pips{display:block;width:100%;max-width:22rem;height:auto;margin-top:.25rem}
.charts{display:grid;grid-template-columns:minmax(0,1fr);gap:1.5rem 1.8rem}
figure{margin:0;min-width:0}
figcaption{font-size:.86rem;margin:.1rem 0 .2rem}
.chart>svg{display:block;width:100%;max-width:34rem;height:auto}
.key{display:flex;flex-wrap:wrap;gap:.1rem 1rem;list-style:none;margin:.1rem 0;padding:0;font-size:.82rem;color:var(--soft)}
.key svg{display:inline-block;width:22px;height:10px;vertical-align:0;margin-right:.35rem}
.flags{grid-template-columns:minmax(0,1fr);gap:0}
.flags dt{color:var(--warn);font-weight:600;margin-top:.45rem}
.says{padding-left:1.1rem;margin:.4rem 0}
@media (min-width:62rem){.cols{grid-template-columns:minmax(0,1.75fr) minmax(17rem,1fr)}.cols:has(>div:empty){grid-template-columns:minmax(0,1fr)}.charts{grid-template-columns:repeat(2,minmax(0,1fr))}}
@media (max-width:30rem){.market td.n:last-child{display:none}.verdict{grid-template-columns:minmax(0,1fr)}dl{grid-template-columns:minmax(0,1fr);gap:0}dd{margin-bottom:.45rem}}
`;

const PICTURES = `
svg text{fill:var(--fg);font:12px system-ui,-apple-system,"Segoe UI",sans-serif;font-variant-numeric:tabular-nums}
svg .axis{fill:var(--soft)}
svg .grid{stroke:var(--grid);fill:none}
svg .track{stroke:var(--grid);fill:none}
svg .bound{stroke:var(--band);fill:none}
svg .area{fill:var(--band);stroke:none;opacity:.8}
svg .line{stroke:var(--mark);fill:none;stroke-width:1.75;stroke-linejoin:round}
svg .thin{stroke:var(--fg);fill:none;stroke-width:1.25;stroke-dasharray:2 3}
svg .point{fill:var(--fg)}
svg .tick{stroke:var(--fg);fill:none}
svg .bad{fill:var(--d)}
svg .good{fill:var(--mark)}
svg .hollow{fill:none;stroke:var(--d);stroke-width:1.2}
svg .off{fill:var(--grid)}
`;

const PRINT = `
@media print{
:root{color-scheme:light;--bg:#fff;--fg:#000;--soft:#333;--line:#bbb;--panel:#fff;--link:#000}
.mast{background:none;color:#000}.mast a{color:#000}.mast nav,form,.skip,.pager,.chips{display:none}
main,.mast>div,footer>div{max-width:none;padding-left:0;padding-right:0}
.grade{print-color-adjust:exact;-webkit-print-color-adjust:exact}
figure,section,tr{break-inside:avoid}
details::details-content{content-visibility:visible;block-size:auto}
.market thead{position:static}
}
@media (forced-colors:active){.grade{border-color:CanvasText}svg .bound,svg .line{stroke:CanvasText}}
@media (prefers-reduced-motion:no-preference){html{scroll-behavior:smooth}}
`;

export const CSS = [COLOURS, TEXT, FRAME, TABLES, MARKET, GRADES, ENDPOINT, PICTURES, PRINT].join("");
