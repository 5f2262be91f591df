"""Wordings of the everyday rules: library, canteen, lockers, travel, time-table and technology.

Data only, parsed by `wordings.py`. One block per topic: `== key kind`, article wordings as
`Title | text` with `{v}` for the value, then question wordings as `? …`. In a question the
words in [brackets] form the expert's query and the one in <angles> is the generic word a
careless searcher would type.
"""

DAILY = """
== library-loan number
Library loans | Books may be kept for {v} days.
Borrowing books | Students return every library book within {v} days.
Lending | The library lends each volume to pupils for {v} days.
Book loans | A borrowed book is due back after {v} days.
? How many <days> can I [keep] a [library] [book]?
? For how many <days> does the [library] [lend] a [volume]?
? After how many <days> is a [borrowed] [book] [due] back?
? How long in <days> may <students> [borrow] a [library] [book]?

== library-fine money
Overdue books | A late library book costs {v}.
Library fines | Students pay {v} for each overdue book.
Late returns | Whoever brings a book back late is fined {v}.
Fines | The school library charges {v} for books returned after the date.
? What is the [fine] for an [overdue] [book]?
? How much do <students> [pay] for a [late] [book]?
? What does the <school> [library] [charge] for a [late] [return]?
? How much does it cost when a <pupil> returns a [library] [book] [overdue]?

== library-closing afternoon
Library hours | The library closes at {v}.
Reading room | Students leave the reading room by {v}, when it shuts.
Library times | Readers may stay in the library until {v}.
Closing of the library | At {v} the librarian locks the reading room.
? When does the [library] [close]?
? Until what <time> may <students> [stay] in the [library]?
? At what <time> does the [reading] [room] [shut]?
? What is the [closing] <time> of the [library]?

== canteen-price money
Lunch price | A school lunch costs {v} a week.
Canteen prices | Students pay {v} a week for a warm meal.
Meals | The weekly price of canteen meals is {v}.
Paying for lunch | The canteen charges {v} for five warm meals.
? What does [lunch] [cost] a <week>?
? How much do <pupils> pay for [canteen] [meals]?
? What is the [weekly] [price] of a [warm] [meal] at <school>?
? How much does the [canteen] [charge] for [lunch]?

== canteen-serving midday
Lunch break | Lunch is served from {v}.
Canteen opening | The canteen starts serving warm food at {v}.
Serving times | Students queue for food in the canteen from {v}.
Midday food | The kitchen hands out lunch from {v} on school days.
? From what <time> is [lunch] [served]?
? When does the [canteen] [start] [serving]?
? At what <time> does the [kitchen] [hand] out [food]?
? From when can <students> [queue] for [food]?

== canteen-allergies person
Food allergies | Students with an allergy speak to {v}.
Allergies | {v} keeps the list of allergies for the kitchen.
Special diets | {v} arranges meals for pupils with a diet or allergy.
Diet requests | Report a food allergy to {v} in the first week.
? Who should be told about a [food] [allergy]?
? Which member of <staff> keeps the [list] of [allergies]?
? Whom do <pupils> with a [special] [diet] speak to?
? Who arranges [meals] for a <student> with an [allergy]?

== locker-deposit money
Locker keys | The deposit for a locker key is {v}.
Lockers | Students leave {v} as a deposit for their locker.
Key deposit | A locker is rented against a pledge of {v}.
Renting lockers | Pay {v} to the office before you get a locker key.
? How much is the [deposit] for a [locker]?
? What do <students> [pay] before they get a [locker] [key]?
? What [pledge] is asked for when [renting] a [locker]?
? How much <money> is the [key] [deposit]?

== locker-clearing date
Clearing lockers | Every locker must be empty by {v}.
Empty lockers | Students clear their lockers no later than {v}.
Locker check | On {v} the caretaker opens and empties all lockers.
End of locker use | Things left in a locker after {v} are thrown away.
? By which <date> must a [locker] be [empty]?
? When do <students> have to [clear] their [lockers]?
? On what <day> does the [caretaker] [open] all [lockers]?
? After which <date> are things [left] in a [locker] [thrown] away?

== bus-departure afternoon
School bus | The last bus leaves the school at {v}.
Bus times | Students must board the afternoon bus before {v}.
Going home by bus | The bus departs from the gate at {v}.
Afternoon bus | The driver waits for pupils until {v}, then the bus goes.
? When does the [last] [bus] [leave]?
? At what <time> does the [bus] [depart] from the gate?
? Until when does the [driver] of the [bus] wait for <pupils>?
? Before what <time> must <students> [board] the [afternoon] [bus]?

== bus-pass money
Bus pass | A bus pass costs {v} a term.
Bus tickets | Students buy a pass for the school bus for {v}.
Travel card | The travel card for the bus is sold for {v}.
Bus fares | Riding the bus all term costs {v} with a pass.
? What does a [bus] [pass] cost?
? How much do <students> pay for the [travel] [card]?
? For how much is a [pass] for the <school> [bus] [sold]?
? How much are [bus] [fares] for a <term>?

== bike-racks room
Bicycles | Bikes are parked beside room {v}.
Cycle racks | Students lock bicycles to the rack outside room {v}.
Bike parking | The cycle stand is behind room {v}.
Coming by bike | Leave your bicycle in the rack next to room {v}.
? Next to which <room> are [bikes] [parked]?
? Near which <room> do <students> [lock] a [bicycle]?
? Behind which <room> is the [cycle] [stand]?
? Beside which <room> is the [bike] [rack]?

== gate-closing morning
School gate | The main gate is shut at {v}.
Coming late | Whoever arrives after {v} must use the side entrance.
Late arrival | Pupils who come late, after {v}, report to the office.
Morning gate | The caretaker closes the gate at {v} each morning.
? At what <time> is the [main] [gate] [shut]?
? After what <time> do [late] <pupils> have to [report]?
? When does the [caretaker] [close] the [gate] each morning?
? After what <time> must <students> who [arrive] [late] use the side [entrance]?

== phone-return afternoon
Mobile phones | Phones are handed back at {v}.
Phones | Students collect their mobile from the office at {v}.
Telephones | A phone taken away in class is returned at {v}.
Phone rules | Mobiles stay switched off until {v}.
? When are [phones] [handed] back?
? At what <time> is a [phone] [taken] away in class [returned]?
? Until what <time> must [mobiles] stay [switched] off?
? At what <time> can <students> [collect] a [mobile] [phone]?

== laptop-deposit money
Laptop loans | A laptop is lent for a deposit of {v}.
Computers | Students pay {v} as security for a school laptop.
Borrowing a laptop | The security for a borrowed computer is {v}.
Tablets and laptops | Leave {v} at the office to borrow a computer.
? How much is the [deposit] for a [laptop]?
? What [security] do <students> pay for a [computer]?
? How much must I leave to [borrow] a [laptop]?
? What does the <school> ask as [security] for a [borrowed] [laptop]?

== printing-quota number
Printing | Each student may print {v} pages a month.
Print quota | The printer stops after {v} pages.
Copies | Pupils may make {v} copies on the printer each month.
Page limit | The limit for printing at school is {v} sheets.
? How many [pages] may a <student> [print]?
? What is the [limit] for [printing]?
? How many [copies] may <pupils> make on the [printer]?
? After how many [sheets] does [printing] stop at <school>?

== wifi-code extension
Wireless network | The guest code for the network is {v}.
Internet access | Students log in to the wireless network with code {v}.
Wifi | Enter {v} to use the wifi at school.
Guest internet | Visitors reach the internet with the code {v}.
? What is the [code] for the [wireless] [network]?
? Which [number] must <students> enter to use the [wifi]?
? What [code] gives <visitors> [internet] access?
? With which [code] do I log in to the [guest] [network] at <school>?

== homework-limit number
Homework | Daily homework takes at most {v} minutes.
Tasks at home | Teachers set no more than {v} minutes of homework a day.
Time for homework | Students need not work longer than {v} minutes at home.
Homework load | The limit for work at home is {v} minutes.
? How many <minutes> of [homework] may teachers [set] a day?
? What is the [longest] <time> in minutes that [homework] takes?
? How many <minutes> must <students> [work] at [home]?
? What is the [limit] for [homework] in <minutes>?

== lessons-start morning
Start of lessons | The first lesson begins at {v}.
Morning bell | The bell for the first lesson rings at {v}.
School day | Teaching starts at {v} every day.
First period | Students sit in class when teaching begins at {v}.
? When does the [first] [lesson] [begin]?
? At what <time> does the [bell] [ring] in the [morning]?
? At what <time> does [teaching] [start]?
? When does the [first] [period] [start] for <students>?

== cleaning-duty number
Classroom duty | Two pupils sweep the classroom for {v} minutes.
Cleaning | Cleaning duty lasts {v} minutes after class.
Tidy rooms | Students tidy their classroom for {v} minutes a week.
Sweeping | Those on cleaning duty stay {v} minutes to sweep.
? How many <minutes> does [cleaning] [duty] last?
? For how many <minutes> do <pupils> [sweep] the [classroom]?
? How long in <minutes> must <students> [tidy] the [classroom]?
? How many <minutes> do those on [duty] stay to [sweep]?

== snow-notice morning
Snow days | By {v} the school says whether it opens in snow.
Bad weather | A closure because of snow is announced at {v}.
Closure notice | In bad weather the school sends a message at {v}.
Winter weather | Families hear about a snow closure before {v}.
? By what <time> does the <school> announce a [closure] in [snow]?
? When is the [message] about [bad] [weather] sent?
? By when do <families> hear about a [snow] [closure]?
? At what <time> is it [announced] that the <school> stays shut in bad [weather]?
"""
