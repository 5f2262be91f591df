"""Wordings of the office rules: health, order, fees, events and people with a task.

Data only, in the format that `daily.py` describes; parsed by `wordings.py`.
"""

OFFICE = """
== sick-call extension
Reporting sick | Parents of a sick child call extension {v}.
Illness | Report illness in the morning on extension {v}.
Sick pupils | If you are ill, phone the school on extension {v}.
Absence by phone | Absent students are reported on number {v}.
? Which <number> do parents of a [sick] [child] [call]?
? On which <number> is [illness] [reported]?
? Which <extension> do I [phone] if I am [ill]?
? On which <number> are [absent] <students> [reported]?

== nurse-room room
Medical room | The nurse sees pupils in room {v}.
School nurse | Students who feel unwell go to the nurse in room {v}.
First help | Plasters and help for injuries are in room {v}.
Injuries | Injured pupils are brought to the medical room, {v}.
? In which <room> is the [nurse]?
? Where do <students> who feel [unwell] go?
? To which <room> are [injured] pupils [brought]?
? Which <room> has [plasters] for [injuries]?

== counsellor person
Counselling | {v} listens to students with worries.
Counsellor | The counsellor of the school is {v}.
Worries | Pupils with worries or trouble can talk to {v}.
Someone to talk to | For counselling ask for {v} at the office.
? Who is the [counsellor]?
? Who [listens] to <students> with [worries]?
? Whom can <pupils> with [trouble] [talk] to?
? Who offers [counselling] at this <school>?

== careers-room room
Careers advice | Careers advice is given in room {v}.
Choosing a job | Students ask about jobs and careers in room {v}.
Career adviser | The adviser for jobs sits in room {v}.
Jobs and training | Room {v} has papers about every career.
? In which <room> is [careers] [advice] given?
? Where can <students> ask about [jobs]?
? In which <room> does the [career] [adviser] sit?
? Which <room> has papers about a [career] or a [job]?

== lost-property-room room
Lost property | Lost things are kept in room {v}.
Found objects | Bring whatever you found to room {v}.
Lost and found | The lost property box stands in room {v}.
Missing things | Students look for missing things in room {v}.
? In which <room> are [lost] [things] kept?
? Where is [lost] [property] found at this <school>?
? To which <room> do I bring something I [found]?
? In which <room> do <students> look for [missing] [things]?

== lost-property-days number
Unclaimed things | Lost property is given away after {v} days.
Keeping found things | Whatever is found is stored for {v} days.
Lost clothes | Lost clothes go to charity after {v} days.
Storage of lost things | The office stores lost items for {v} days.
? After how many <days> is [lost] [property] [given] away?
? For how many <days> does the office [store] [lost] [items]?
? How many <days> are [found] [things] [stored]?
? After how many <days> do [lost] [clothes] go to [charity]?

== detention-room room
Detention | Detention is held in room {v}.
Staying behind | Pupils kept behind as a punishment sit in room {v}.
Detention class | Students in detention report to room {v}.
Punishment | Whoever breaks a rule writes an essay in room {v}.
? In which <room> is [detention] [held]?
? Where do <students> in [detention] [report]?
? In which <room> do pupils kept [behind] as a [punishment] sit?
? Where does a <pupil> who [breaks] a rule serve the [punishment]?

== absence-limit number
Absences | More than {v} missed lessons lead to a letter home.
Attendance | The school writes home after {v} hours of absence.
Missing class | Parents are invited once {v} lessons were missed.
Truancy | After {v} missed hours the head speaks to the family.
? How many [missed] [lessons] lead to a [letter] home?
? After how many hours of [absence] does the <school> [write] home?
? After how many [missed] [lessons] are parents [invited]?
? After how many [missed] [hours] does the head [speak] to the <family>?

== visitor-badge room
Visitors | Visitors sign in at room {v}.
Guests | Guests get a badge in room {v} before entering.
Visitor badges | The badge for guests is handed out in room {v}.
Visiting the school | Every visitor first reports to room {v}.
? In which <room> do [visitors] [sign] in?
? Where do [guests] get a [badge]?
? In which <room> is the [visitor] [badge] handed out at <school>?
? To which <room> must every [visitor] [report] first?

== card-replacement money
Student card | A new student card costs {v}.
Lost cards | Replacing a lost card costs students {v}.
Identity card | Pay {v} if your identity card must be replaced.
Card replacement | The office prints a second card for {v}.
? What does a [new] student [card] cost?
? How much do <students> pay for [replacing] a [lost] [card]?
? What is paid if an [identity] [card] must be [replaced]?
? For how much does the <office> [print] a second [card]?

== uniform-jacket money
Uniform | The uniform jacket is sold for {v}.
School clothes | Students buy the jacket of the uniform for {v}.
Jackets | A blazer with the school badge costs {v}.
Uniform shop | In the shop the blazer or jacket costs {v}.
? How much is the [uniform] [jacket]?
? What does the [blazer] of the <school> cost?
? For how much is the [jacket] [sold]?
? What do <students> pay for the [jacket] in the uniform [shop]?

== fire-warden person
Fire safety | {v} is the fire warden.
Fire drill | In a fire drill all students follow {v}.
Fire alarm | When the alarm sounds, {v} counts the pupils.
Evacuation | The evacuation of the school is led by {v}.
? Who is the [fire] [warden]?
? Whom do <students> follow in a [fire] [drill]?
? Who [counts] the pupils when the [alarm] [sounds]?
? Who leads the [evacuation] of the <school>?

== lab-safety person
Laboratory safety | {v} checks safety in the laboratory.
Chemistry lab | {v} keeps the keys of the chemistry lab.
Experiments | Experiments need the consent of {v}.
Lab rules | Ask {v} before you use the laboratory.
? Who checks [safety] in the [laboratory]?
? Who keeps the [keys] of the [chemistry] [lab]?
? Whose [consent] do <students> need for [experiments]?
? Whom do <pupils> ask before they use the [laboratory] for [experiments]?

== council-election date
Student council | The student council is elected on {v}.
Elections | Pupils vote for the council on {v}.
Council vote | The election of class speakers is on {v}.
Class speakers | Every class elects its speaker on {v}.
? On which <date> is the student [council] [elected]?
? When do <pupils> [vote] for the [council]?
? On what <day> is the [election] of class [speakers]?
? When does every <class> [elect] its [speaker]?

== sports-day date
Sports day | Sports day takes place on {v}.
Games | The races and games of all classes are held on {v}.
Athletics | All students compete in athletics on {v}.
Races | The great running races are on {v}.
? When does [sports] day take place?
? On which <date> do all <students> [compete] in [athletics]?
? On what <day> are the [races] and [games] held?
? When are the [running] [races] of the <school>?

== open-day date
Open day | The school opens its doors to families on {v}.
Open doors | New families can look around on {v}.
Looking around | On {v} guides show the school to new pupils.
Tours | Tours for new families are offered on {v}.
? When can [new] <families> [look] around?
? On which <date> does the <school> [open] its [doors]?
? When are [tours] for [new] pupils offered?
? On what <day> do [guides] show the <school>?

== exam-resit money
Resits | A resit of an exam costs {v}.
Repeating exams | Students pay {v} to repeat an examination.
Second attempts | The fee for a second attempt at an exam is {v}.
Failed exams | Whoever failed may try again for {v}.
? What does a [resit] of an [exam] cost?
? How much do <students> pay to [repeat] an [examination]?
? What is the [fee] for a [second] [attempt]?
? For how much may a <pupil> who [failed] an [exam] try again?

== exam-pass number
Passing marks | An exam is passed with {v} points.
Pass mark | Students need {v} points to pass an examination.
Marks | Fewer than {v} points means that the exam is failed.
Grading | The lowest passing mark is {v}.
? How many [points] are needed to [pass] an [exam]?
? What is the [lowest] [passing] [mark]?
? With fewer than how many [points] is an [examination] [failed]?
? How many [points] do <students> need in [grading] to [pass]?

== yearbook-price money
Yearbook | The yearbook is sold for {v}.
School photos | The book with all class photos costs {v}.
Class photos | Families buy the yearbook and photos for {v}.
Memories | A printed yearbook costs students {v}.
? How much is the [yearbook]?
? What does the book with all [class] [photos] cost?
? For how much do <families> buy [yearbook] and [photos]?
? How much do <students> pay for a [printed] [yearbook]?

== volunteering-hours number
Volunteering | Students volunteer for {v} hours a year.
Community service | Students do {v} hours of service in town.
Helping others | Helping in the community takes {v} hours a year.
Service hours | Each pupil owes {v} hours of community work.
? How many <hours> does every <student> [volunteer]?
? How many <hours> of [service] in [town] are asked for?
? How many <hours> does [helping] in the [community] take?
? How many hours of [community] [work] does a <pupil> owe?

== parking-permit money
Car park | A parking permit costs {v} a year.
Parking | Older students park their car for {v} a year.
Parking permits | The office sells permits for the car park for {v}.
Cars | Leave a car in the yard only with a permit for {v}.
? What does a [parking] [permit] cost?
? How much do older <students> pay to [park] a [car]?
? For how much does the <office> sell [permits] for the [car] park?
? How much is the [permit] for a [car] in the [yard]?

== garden-water person
School garden | {v} waters the plants in the garden.
Plants | Flowers and plants are cared for by {v}.
Garden keys | {v} opens the garden shed for pupils.
Greenhouse | Ask {v} for the key of the greenhouse.
? Who [waters] the [plants]?
? Who cares for the [flowers] in the <school> [garden]?
? Who opens the [garden] [shed] for <pupils>?
? Whom do <students> ask for the key of the [greenhouse] and [plants]?

== music-key room
Practice rooms | The key to practise music is kept in room {v}.
Piano | The piano may be played in room {v}.
Music practice | Students practise the piano in room {v}.
Practising | Whoever practises an instrument uses room {v}.
? In which <room> may the [piano] be [played]?
? Where do <students> [practise] the [piano]?
? Which <room> is for [music] [practice]?
? In which <room> does one [practise] an [instrument] at <school>?

== theft-report person
Theft | Theft is reported to {v}.
Stolen things | If something is stolen, tell {v} at once.
Damage and theft | {v} writes down every theft and all damage.
Broken windows | Students report damage or a broken window to {v}.
? To whom is [theft] [reported]?
? Whom do <students> tell if something is [stolen]?
? Who writes down every [theft] and all [damage]?
? To whom is a [broken] [window] or other [damage] reported at <school>?
"""
