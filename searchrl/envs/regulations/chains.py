"""Wordings of the chains: articles that name an entity, and articles about that entity.

Data only, in the format of `daily.py` with these additions, parsed by `wordings.py`. A family
`=== key bridge-kind value-kind` has subjects (`* key: one name, another name`), link articles
`> Title | text` where `{A}` and `{a}` are a subject's names and `{v}` the entity, entity articles
`@ Title | text` where `{p}` is the entity and `{v}` its value, and three lists of questions:
`?` about the link, `?@` about a named entity, `??` over both hops. `+` gives the attribute word
of the second query; `-` are remarks about a subject and `~` remarks about an entity, which
answer nothing.
"""

CHAINS = """
=== club person room
+ room
* chess: chess club, chess group
* choir: choir, singing group
* robotics: robotics club, robot workshop
* gardening: gardening club, garden team
* debate: debating society, debate club
* photo: photography club, photo circle
* film: film club, cinema circle
* astronomy: astronomy club, stargazing group
* cooking: cooking club, kitchen circle
* climbing: climbing team, bouldering group
* coding: coding club, programming group
* radio: student radio, broadcast team
* orchestra: orchestra, string ensemble
* newspaper: student newspaper, press team
> {A} | The {a} is supervised by {v}.
> {A} | {v} runs the {a} every week.
> {A} | Students join the {a} by asking {v}, who leads it.
> {A} | The teacher in charge of the {a} is {v}.
> {A} | {v} looks after the {a} at school.
@ {p} | {p} works in room {v}.
@ Staff offices | {p} can be found in room {v}.
@ Finding {p} | The office of {p} is room {v}.
@ Staff rooms | {p} sees students in room {v}.
@ {p} | Knock at room {v} to speak to {p}.
~ Duty rota | {p} is on duty in the yard on Mondays.
~ Staff news | {p} joined the school three years ago.
~ School play | {p} plays the piano in the school play.
- Meeting days | The {a} meets after school on Fridays.
- Club fees | Joining the {a} is free of charge.
- {A} | The {a} travels to a contest in spring.
- {A} | Students may leave the {a} at any time.
? Who [supervises] the [{q}]?
? Which <teacher> [runs] the [{q}]?
? Who is the [leader] of the [{q}] at this <school>?
? Who is in [charge] of the [{q}]?
?@ Which <room> is [{q}] in?
?@ Where is the <office> of [{q}]?
?@ In which <room> does [{q}] work?
?@ In which <room> can <students> find [{q}]?
?? Which <room> is the [supervisor] of the [{q}] in?
?? In which <room> does the person who [runs] the [{q}] work?
?? Where is the <office> of the [leader] of the [{q}]?
?? In which <room> can I find the teacher in [charge] of the [{q}]?

=== venue building afternoon
+ time
* lessons: music lessons, instrument lessons
* parents: parent meetings, family talks
* exams: written exams, examinations
* tutoring: homework help, homework tutoring
* science: science fairs, science exhibitions
* firstaid: first aid courses, first aid training
* assembly: morning assemblies, morning gatherings
* art: art exhibitions, art shows
* dance: dance practice, dance rehearsals
* language: language courses, foreign languages
> {A} | The place for {a} is {v}.
> {A} | Students go to {v} for {a}.
> {A} | The venue for {a} is {v}.
> {A} | {v} is reserved for {a}.
> Where to go | For {a}, pupils enter {v}.
@ {p} | {p} is locked at {v}.
@ Closing times | {p} closes at {v}.
@ {p} | The doors of {p} shut at {v}.
@ Evening hours | Everyone leaves {p} by {v}.
@ Late work | Nobody may stay in {p} after {v}.
~ Painting | {p} was painted last summer.
~ History | {p} is the oldest house of the school.
~ Ramp | {p} has a ramp for wheelchairs.
- {A} | No food is allowed during {a}.
- Name lists | Put your name on the list for {a}.
- Shoes | Students wear indoor shoes for {a}.
- {A} | Teachers tell the class early about {a}.
? Which <building> is the [place] for [{q}]?
? Where do <students> [go] for [{q}]?
? What is the [venue] for [{q}] at this <school>?
? Which <building> is [reserved] for [{q}]?
?@ When is [{q}] [locked]?
?@ At what <time> does [{q}] [close]?
?@ By what <time> must <students> [leave] [{q}]?
?@ When do the doors of [{q}] [shut] at <school>?
?? When is the <building> where <students> [go] for [{q}] locked?
?? At what <time> does the [venue] for [{q}] close?
?? By what <time> must everyone leave the [place] for [{q}]?
?? When does the <building> [reserved] for [{q}] shut?

=== form form number
+ days
* leave: leave requests, time off
* transfer: course changes, changing courses
* trip: trip consent, excursion consent
* appeal: exam appeals, exam complaints
* booking: room bookings, hall bookings
* refund: fare refunds, travel refunds
* medicine: medicine use, taking medicine
* swap: class swaps, changing class
> {A} | For {a}, fill in {v}.
> {A} | {v} is required for {a}.
> Paperwork | The right paper for {a} is {v}.
> {A} | Ask the office for {v}, which covers {a}.
> {A} | Students sign {v} for {a}.
@ {p} | Hand in {p} within {v} days.
@ Deadlines | {p} is due within {v} days.
@ Handing in | The office must have {p} after {v} days.
@ {p} | Bring {p} back no later than {v} days afterwards.
@ Return of papers | Students return {p} in {v} days at most.
~ Printing | {p} is printed on yellow paper.
~ Copies | Keep a copy of {p} at home.
~ Signatures | {p} needs two signatures.
- Questions | The office answers questions about {a}.
- {A} | In busy weeks dealing with {a} takes longer.
- Advice | Talk to your teacher before {a}.
- {A} | The rules for {a} are the same for all pupils.
? Which <form> is [required] for [{q}]?
? Which <form> do I [fill] in for [{q}]?
? What is the [right] [paper] for [{q}] at this <school>?
? Which <form> do <students> [sign] for [{q}]?
?@ Within how many <days> must [{q}] be [handed] in?
?@ In how many <days> is [{q}] due?
?@ How many <days> do <students> have to return [{q}]?
?@ After how many <days> must the <office> have [{q}]?
?? Within how many <days> must the form [required] for [{q}] be handed in?
?? In how many <days> is the form I [fill] in for [{q}] due?
?? How many <days> do <students> have to return the [paper] for [{q}]?
?? After how many <days> must the <office> have the form [signed] for [{q}]?

=== fund fund money
+ limit
* trips: school trips, excursions
* instruments: musical instruments, instrument hire
* kit: sports kit, sports clothing
* meals: school meals, canteen costs
* fees: exam fees, examination costs
* paint: art materials, painting supplies
* textbooks: textbooks, course books
* glasses: reading glasses, new glasses
> {A} | The {v} pays for {a}.
> {A} | The {v} helps families with {a}.
> Support | Help with {a} comes from the {v}.
> {A} | Families who cannot afford {a} turn to the {v}.
> Aid | Ask the {v} for money towards {a}.
@ {p} | The {p} pays up to {v} a year.
@ Grants | The largest grant of the {p} is {v}.
@ Limits | Nobody gets more than {v} from the {p}.
@ {p} | Each student gets at most {v} from the {p}.
@ Grants | The {p} gives no more than {v} to a family.
~ Thanks | The {p} was set up by former pupils.
~ Meetings | The board of the {p} meets in spring.
~ Donations | Anyone may give money to the {p}.
- Planning | Families plan {a} early in the year.
- {A} | A letter home explains {a} to families.
- Questions | Teachers answer questions about {a}.
- {A} | The school asks parents about {a} every spring.
? Which <fund> [pays] for [{q}]?
? Which <fund> [helps] <families> with [{q}]?
? Where does [help] with [{q}] come from at this <school>?
? Which <fund> do <families> who cannot [afford] [{q}] turn to?
?@ How much does the [{q}] [pay] at most?
?@ What is the [largest] grant of the [{q}]?
?@ How much can a <student> get from the [{q}]?
?@ What is the most a <family> [receives] from the [{q}]?
?? How much at most does the <fund> that [pays] for [{q}] give?
?? What is the largest grant of the <fund> that [helps] with [{q}]?
?? How much can a <student> get from the <fund> that gives money towards [{q}]?
?? What is the most a family receives from the <fund> for those who cannot [afford] [{q}]?
"""
